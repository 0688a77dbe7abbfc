! Three-story shear frame with its own explicit integration and ground motion.
!   frame FILE          compute the complete frame
!   frame FILE PORT     the spring of the first story is in the laboratory: rths run frame.yaml
! FILE receives the displacements of the floors, m, one line per step.
! SPDX-License-Identifier: Apache-2.0
program frame
  use, intrinsic :: iso_c_binding, only: c_double
  use, intrinsic :: iso_fortran_env, only: error_unit
  use rths_client
  implicit none

  integer, parameter :: stories = 3, steps = 300
  real(c_double), parameter :: dt = 0.01_c_double
  real(c_double), parameter :: mass(stories) = [1000.0_c_double, 900.0_c_double, 800.0_c_double]        ! kg
  real(c_double), parameter :: stiffness(stories) = [1.0e6_c_double, 9.0e5_c_double, 8.0e5_c_double]    ! N/m
  real(c_double) :: x(stories), v(stories), a(stories), spring(stories)
  character(256) :: file, argument
  integer :: step, client, port, unit

  if (command_argument_count() < 1) then
    write (error_unit, "(a)") "usage: frame FILE [PORT]"
    stop 2
  end if
  call get_command_argument(1, file)
  client = 0
  if (command_argument_count() > 1) then
    call get_command_argument(2, argument)
    read (argument, *) port
    client = rths_connect("127.0.0.1", port, 1, connect_within=60.0_c_double, answer_within=60.0_c_double)
    if (client < 0) call abort_run("connect", client)
  end if

  open (newunit=unit, file=file, status="replace", action="write")
  x = 0.0_c_double
  v = 0.0_c_double
  a = -ground(0)
  do step = 1, steps
    x = x + dt*v + 0.5_c_double*dt**2*a
    v = v + 0.5_c_double*dt*a
    spring(1) = first_story()
    spring(2:) = stiffness(2:)*(x(2:) - x(:stories - 1))
    a = (-spring + [spring(2:), 0.0_c_double])/mass - ground(step)
    v = v + 0.5_c_double*dt*a
    if (client > 0) call check("commit", rths_commit(client))
    write (unit, "(3es26.17e3)") x
  end do
  close (unit)
  if (client > 0) call check("close", rths_close(client))

contains

  ! Computed or measured force of the first spring, N.
  real(c_double) function first_story()
    real(c_double) :: force(1)
    if (client == 0) then
      first_story = stiffness(1)*x(1)
      return
    end if
    call check("trial", rths_trial(client, x(1:1), v(1:1), a(1:1), step*dt))
    call check("force", rths_force(client, force))
    first_story = force(1)
  end function

  ! Acceleration of the ground at step i, m/s^2.
  real(c_double) function ground(i)
    integer, intent(in) :: i
    ground = 2.0_c_double*sin(9.0_c_double*dt*i)*exp(-0.5_c_double*dt*i)
  end function

  subroutine check(call_name, outcome)
    character(*), intent(in) :: call_name
    integer, intent(in) :: outcome
    if (outcome /= rths_ok) call abort_run(call_name, outcome)
  end subroutine

  ! Print the failed call and stop. FILE keeps the completed steps.
  subroutine abort_run(call_name, outcome)
    character(*), intent(in) :: call_name
    integer, intent(in) :: outcome
    integer :: ignored
    write (error_unit, "(a, i0, 4a)") "frame: step ", step, ": ", call_name, ": ", rths_words(outcome)
    if (client > 0) ignored = rths_close(client)
    stop 1
  end subroutine
end program
