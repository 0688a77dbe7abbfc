! Fortran interface of rths_client.c, with the same calls and results: see rths_client.h.
! SPDX-License-Identifier: Apache-2.0
module rths_client
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_f_pointer, c_int, c_null_char, c_ptr, c_size_t
  implicit none
  private
  public :: rths_connect, rths_trial, rths_force, rths_commit, rths_stiffness, rths_damping, rths_mass, rths_close, &
            rths_words

  integer, parameter, public :: rths_protocol = 1
  integer, parameter, public :: rths_ok = 0, rths_argument = -1, rths_nobody = -2, rths_timeout = -3, rths_closed = -4, &
                                rths_broken = -5, rths_order = -6, rths_garbage = -7, rths_unknown = -8, rths_full = -9

  interface
    integer(c_int) function c_connect(address, port, n, connect_within, answer_within) &
      bind(c, name="rths_client_connect")
      import :: c_char, c_double, c_int
      character(kind=c_char), intent(in) :: address(*)
      integer(c_int), value :: port, n
      real(c_double), value :: connect_within, answer_within
    end function

    integer(c_int) function rths_trial(client, displacement, velocity, acceleration, time) &
      bind(c, name="rths_client_trial")
      import :: c_double, c_int
      integer(c_int), value :: client
      real(c_double), intent(in) :: displacement(*), velocity(*), acceleration(*)
      real(c_double), value :: time
    end function

    integer(c_int) function rths_force(client, force) bind(c, name="rths_client_force")
      import :: c_double, c_int
      integer(c_int), value :: client
      real(c_double), intent(inout) :: force(*)
    end function

    integer(c_int) function rths_commit(client) bind(c, name="rths_client_commit")
      import :: c_int
      integer(c_int), value :: client
    end function

    integer(c_int) function rths_stiffness(client, matrix) bind(c, name="rths_client_stiffness")
      import :: c_double, c_int
      integer(c_int), value :: client
      real(c_double), intent(inout) :: matrix(*)
    end function

    integer(c_int) function rths_damping(client, matrix) bind(c, name="rths_client_damping")
      import :: c_double, c_int
      integer(c_int), value :: client
      real(c_double), intent(inout) :: matrix(*)
    end function

    integer(c_int) function rths_mass(client, matrix) bind(c, name="rths_client_mass")
      import :: c_double, c_int
      integer(c_int), value :: client
      real(c_double), intent(inout) :: matrix(*)
    end function

    integer(c_int) function rths_close(client) bind(c, name="rths_client_close")
      import :: c_int
      integer(c_int), value :: client
    end function

    type(c_ptr) function c_words(outcome) bind(c, name="rths_client_words")
      import :: c_int, c_ptr
      integer(c_int), value :: outcome
    end function

    integer(c_size_t) function c_length(text) bind(c, name="strlen")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  integer(c_int) function rths_connect(address, port, n, connect_within, answer_within) result(client)
    character(*), intent(in) :: address
    integer, intent(in) :: port, n
    real(c_double), intent(in) :: connect_within, answer_within
    client = c_connect(trim(address)//c_null_char, int(port, c_int), int(n, c_int), connect_within, answer_within)
  end function

  function rths_words(outcome) result(message)
    integer, intent(in) :: outcome
    character(:), allocatable :: message
    character(kind=c_char), pointer :: letters(:)
    type(c_ptr) :: text
    integer :: i
    text = c_words(int(outcome, c_int))
    call c_f_pointer(text, letters, [c_length(text)])
    allocate (character(size(letters)) :: message)
    do i = 1, size(letters)
      message(i:i) = letters(i)
    end do
  end function
end module
