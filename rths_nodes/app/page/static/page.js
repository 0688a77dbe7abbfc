// SPDX-License-Identifier: Apache-2.0
"use strict";
// The page of a test: draws what the server sends over a WebSocket. It contains no decisions of its own.

const OLD_S = 0.5;             // age from which the situation is shown in grey
const STALE_MS = 2000;         // silence of the server or of the stopping process after which the stop counts as not available
const BEAT_MS = 500;           // interval at which the page asks whether a stop reaches the rig
const UNCONFIRMED_MS = 300;    // time after which a stop counts as not confirmed
const ALIVE_MS = 500;          // interval of the leading page's messages; after 3 s without a message the rig is disarmed
const WARN = 0.8;              // share of a limit from which its bar warns
const MOST_POINTS = 1500;      // columns of a plot; further columns are merged, with their extremes
const PER_CURVE = 4, FIRST = 0, LOWEST = 1, HIGHEST = 2, LAST = 3;
const STOP_KEYS = { F8: "stop", F9: "trip" };
const KINDS = { "REAL RIG": "rig", EMULATED: "emulated", SIMULATED: "simulated" };
const MOVES = ["RUNNING", "STOPPING", "CHECKING", "POSITIONING", "RESUMING", "UNLOADING", "ARMED"];
const BAD = ["TRIPPED"];
const INNER = "compensator.", LEARNT = "updating.";

const $ = (name) => document.getElementById(name);
const text = (name, words) => { if ($(name).textContent !== words) $(name).textContent = words; };

let head = 0, playing = false, whole = true;   // for a recording: number of shown columns, whether it is playing, whether all received columns are shown
let told = {}, curves = null, run = "", paused = false, seconds = 60, axis = "";
let starts = [], per = 1, columns = [];   // first sample of each column, and its values, four per curve

// -- received data -------------------------------------------------------------------------------------

let socket = null, heard = 0, alive = 0;

function connect() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    starts = [];
    columns = [];   // the server sends all kept columns again
  };
  socket.onmessage = (message) => typeof message.data === "string" ? situation(JSON.parse(message.data)) : more(message.data);
  socket.onclose = () => setTimeout(connect, 1000);
}

function situation(now) {
  told = now;
  heard = performance.now();
  if (token && heard - alive > ALIVE_MS) {   // sent with a received message, because browsers slow the timers of hidden pages
    alive = heard;
    socket.send(token);
  }
  const its = now.curves;
  if (its && its.run !== run) {
    run = its.run;
    curves = its;
    starts = [];
    columns = [];
    axes();
  }
  show();
}

function more(data) {
  if (!curves) return;
  const head = new DataView(data);
  const first = head.getUint32(0, true), width = PER_CURVE * curves.names.length, values = new Float32Array(data, 8);
  per = head.getUint32(4, true);
  for (let k = 0; k * width < values.length; k++) {
    const start = first + k * per;
    if (starts.length && start <= starts[starts.length - 1]) continue;
    starts.push(start);
    columns.push(values.subarray(k * width, (k + 1) * width));
  }
}

// number of columns shown: all received columns; in a recording those up to the slider
const reach = () => told.recorded ? Math.floor(Math.min(head, columns.length)) : columns.length;

// -- head -------------------------------------------------------------------------------------------

function clock(s) {
  const tenths = Math.round(10 * s);
  return `${Math.floor(tenths / 600)}:${(tenths % 600 / 10).toFixed(1).padStart(4, "0")}`;
}

const underWay = () => told.procedure && !told.procedure.over ? told.procedure : null;

// an ended procedure is shown until another run begins, because its last run may have been a rehearsal
function ended() {
  const last = (told.events || []).filter((each) => each.what === "run" || each.what === "procedure").pop();
  return told.run && !told.run.over || !last || last.what === "run" ? null : told.procedure;
}

function show() {
  const leads = underWay() || ended() || told.run || told.procedure;
  const early = leads && leads === told.procedure && leads.over && leads.reason;   // the procedure ended before its last rung
  const name = early ? "ENDED" : leads ? leads.state : "NOT SEEN";
  text("state", name);
  $("state").className = "state " + (MOVES.includes(name) ? "moves" : BAD.includes(name) ? "bad" : name === "FINISHED" ? "good" : "");
  text("scenario", leads ? leads.scenario : `nothing received from /${told.namespace || ""}`);
  text("reason", leads ? leads.reason : "");
  $("reason").className = `reason${BAD.includes(name) ? " bad" : ""}`;
  const whose = told.user ? ` (${told.user}, /${told.namespace})` : "";
  text("whose", whose);
  document.title = (leads ? `${name}: ${leads.scenario}` : "rths: no test yet") + whose;
  document.querySelector(".stops").hidden = Boolean(told.recorded);
  $("player").hidden = !told.recorded;
  for (const each of ["nodes", "events"]) $(each).closest("section").hidden = Boolean(told.recorded);
  banner(leads);
  const its = told.run;
  if (its && its.servo_rate) {
    const last = reach(), drawn = last ? starts[last - 1] + per : 0;
    const sample = told.recorded ? Math.min(drawn, its.sample) : its.over ? its.sample : drawn;
    text("time", `${clock(sample / its.servo_rate)} of ${clock(its.samples / its.servo_rate)}`);
    text("left", its.over && !told.recorded ? "" : `${clock(Math.max(0, its.samples - sample) / its.servo_rate)} to go`);
    $("progress").style.width = `${Math.min(100, 100 * sample / Math.max(1, its.samples))}%`;
  }
  for (const button of [$("stop"), $("trip")]) button.disabled = !told.may_stop;
  if (!told.may_stop) answer("this machine may watch but not stop the rig", "");
  limits();
  nodes();
  inside();
  events();
  procedure();
}

// REAL RIG, EMULATED or SIMULATED; for a procedure also before it connects
function banner(leads) {
  const ofProcedure = leads && leads === told.procedure, kind = (told.rig_kinds || {})[ofProcedure ? "procedure" : "run"];
  const words = kind ? kind + (ofProcedure && leads.state === "IDLE" ? ", NOT CONNECTED" : "") : "KIND OF RIG NOT REPORTED: TREAT IT AS REAL";
  text("real", told.recorded ? `RECORDING ${told.recorded}: ${kind}` : leads ? words : "NO TEST SEEN");
  $("real").className = `real ${told.recorded || !leads ? "" : KINDS[kind] || "rig"}`;
}

let beat = 0, reaches = false;   // time of the last answer of the stopping process, and whether a stop reaches a rig

async function heartbeat() {
  if (!heard || told.recorded) return;
  try {
    const answer = await fetch("/stop", { signal: AbortSignal.timeout(STALE_MS) });
    reaches = (await answer.json()).reaches;
    beat = performance.now();
  } catch { /* age() shows that the stop is not available */ }
}

// if the data are old or a stop does not arrive, text replaces the buttons; F8 and F9 are still sent
function available(lost, moves) {
  const silent = performance.now() - beat > STALE_MS, here = told.may_stop !== false;
  const gone = lost || silent || (moves && !reaches);
  $("unavailable").hidden = !gone || !here;
  for (const button of [$("stop"), $("trip")]) button.hidden = gone && here;
  text("because", lost ? "this page is not up to date" : silent ? "the process that stops the rig does not respond" : "a stop does not reach the rig from here");
}

function age() {
  const lost = !socket || socket.readyState !== WebSocket.OPEN || performance.now() - heard > STALE_MS;
  $("lost").hidden = !lost || !heard;
  const since = told.age == null ? null : told.age + (performance.now() - heard) / 1000;
  const leads = underWay();
  const over = told.run && told.run.over && !leads, waits = leads && told.acts && told.acts.state === "IDLE";
  document.body.classList.toggle("old", !told.recorded && (lost || since == null || (since > OLD_S && !over && !waits)));
  text("age", told.recorded ? "recorded" : since == null ? "nothing received yet" : waits ? "not connected" : over ? "the test has ended" : since > OLD_S ? `last received ${since.toFixed(1)} s ago` : "live");
  $("focus").hidden = document.hasFocus();
  const moves = leads ? leads.state !== "IDLE" : told.run && !over;
  available(lost, moves);
}

// -- the stop ---------------------------------------------------------------------------------------

function answer(words, kind) {
  text("answer", words);
  $("answer").className = `answer ${kind}`;
}

async function stop(kind) {
  if (told.may_stop === false) return;
  answer("requested ...", "");
  const late = setTimeout(() => answer("NOT CONFIRMED: use the hardware", "not"), UNCONFIRMED_MS);
  try {
    const given = await fetch("/stop", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Rths-Page": "1" },
      body: JSON.stringify({ kind }),
    });
    const found = await given.json();
    clearTimeout(late);
    if (found.confirmed) answer(`confirmed: ${found.words}`, "yes");
    else answer(`NOT CONFIRMED: use the hardware (${found.why || found.error})`, "not");
  } catch {
    clearTimeout(late);
    answer("NOT CONFIRMED: use the hardware (no answer)", "not");
  }
}

// act on pointerdown, and not on keys that press the focused button
$("stop").addEventListener("pointerdown", (event) => { event.preventDefault(); stop("stop"); });
$("trip").addEventListener("pointerdown", (event) => { event.preventDefault(); stop("trip"); });
window.addEventListener("keydown", (event) => {
  if (!(event.key in STOP_KEYS)) return;
  event.preventDefault();
  if (!event.repeat) stop(STOP_KEYS[event.key]);
}, true);

// -- limits, nodes, events --------------------------------------------------------------------------

const SCALE = { m: [1e3, "mm"], N: [1e-3, "kN"], "m^2": [1e6, "mm²"] };
const digits = (value) => String(Number(value.toPrecision(3)));
const scale = (unit) => SCALE[unit] || [1, unit];

const STATUS = [["\u25cf", ""], ["\u25b2", "warn"], ["\u25a0", "bad"]];   // shape and class: colour alone is not enough
const BIG = { stroke: "displacement", force: "force" };   // limits with a reading in the wall view

// for each limit: the last value, the largest fraction of the limit in the last second, and the remaining distance
function limited() {
  if (!curves || !columns.length) return [];
  const end = reach(), last = columns.slice(Math.max(0, end - Math.max(1, Math.round(curves.servo_rate / per))), end);
  return curves.limits.map(({ curve, name, low, high }) => {
    const at = PER_CURVE * curve, [factor, unit] = scale(curves.units[curve]);
    const valid = last.filter((column) => column[at + LOWEST] <= column[at + HIGHEST]);   // the others have no samples
    const highest = Math.max(...valid.map((column) => column[at + HIGHEST])), lowest = Math.min(...valid.map((column) => column[at + LOWEST]));
    const missing = name in BIG ? Infinity : 0;   // an axis has no error while it moves in another control mode
    const share = valid.length ? Math.max(0, highest / high, lowest / low) : missing, left = Math.min(high - highest, lowest - low);
    const value = last.length ? last[last.length - 1][at + LAST] * factor : NaN, [shape, kind] = STATUS[share >= 1 ? 2 : share >= WARN ? 1 : 0];
    const far = !valid.length ? "no value" : `${digits(Math.abs(left) * factor)} ${unit} ${left < 0 ? "beyond" : "left of"} ${digits(high * factor)} ${unit}`;
    return { axis: curves.names[curve].split("/")[0], name, unit, share, value, shape, kind, far, places: Math.max(0, 4 - Math.floor(high * factor).toString().length) };
  });
}

function limits() {
  const rows = limited();
  if (location.hash === "#wall") wall(rows);
  if (!rows.length) return;
  rows.sort((one, other) => other.share - one.share);
  const place = $("limits");
  if (place.children.length !== rows.length || (place.firstChild && place.firstChild.tagName === "P")) {
    place.replaceChildren(...rows.map(() => {
      const row = document.createElement("div");
      row.innerHTML = '<div class="name"><span></span><span></span></div><div class="track"><div></div></div>';
      return row;
    }));
  }
  rows.forEach((row, i) => {
    const [names, track] = place.children[i].children;
    place.children[i].className = `limit ${row.kind}`;
    names.children[0].textContent = `${row.shape} ${row.axis}: ${row.name.replace("_", " ")}`;
    names.children[1].textContent = row.far;
    track.firstChild.style.width = `${Math.min(100, 100 * row.share)}%`;
  });
}

// displacement and force of every axis in digits that can be read from 3 m
function wall(rows) {
  const read = rows.filter((row) => row.name in BIG);
  $("wall").style.setProperty("--axes", Math.max(1, read.length / 2));
  $("wall").replaceChildren(...read.map((row) => {
    const box = document.createElement("div");
    box.className = `reading ${row.kind}`;
    const line = (kind, words) => Object.assign(box.appendChild(document.createElement("div")), { className: kind, textContent: words });
    line("what", `${row.axis}: ${BIG[row.name]}`);
    line("digits", Number.isFinite(row.value) ? row.value.toFixed(row.places).replace("-", "\u2212") : "\u2013").append(Object.assign(document.createElement("small"), { textContent: ` ${row.unit}` }));
    line("far", `${row.shape} ${row.far}`);
    return box;
  }));
  if (!read.length) text("wall", "No motion has been received yet.");
}

function view() {
  document.body.classList.toggle("on-wall", location.hash === "#wall");
  fit();
  if (heard) show();
}

window.addEventListener("hashchange", view);

// update rows of name, text and class if they have changed
function fill(place, found) {
  const key = JSON.stringify(found);
  if ($(place).dataset.key === key) return;
  $(place).dataset.key = key;
  $(place).replaceChildren(...found.map(([name, words, kind]) => {
    const row = document.createElement("tr"), left = row.insertCell(), right = row.insertCell();
    left.textContent = name;
    right.textContent = words;
    right.className = kind;
    return row;
  }));
}

function nodes() {
  const said = ["ok", "warning", "error", "stale"];
  fill("nodes", Object.entries(told.nodes || {}).sort().map(([name, each]) => [name, each.words || said[each.level], `level${each.level}`]));
}

// node diagnostics, once a second: inner quantities of the compensator, and timing of the loop
function inside() {
  const nodes = told.nodes || {}, of = (name) => (nodes[name] && nodes[name].values) || {};
  const inner = Object.entries(of("compensator")).filter(([name]) => name.startsWith(INNER));
  fill("inner", inner.map(([name, value]) => [name.slice(INNER.length).replace(/^axes\./, "").replaceAll("_", " "), value, "number"]));
  const actuator = of("actuator"), timing = [];
  for (const name of ["missed", "bridged", "late"]) {
    if (name in actuator) timing.push([`${name} samples`, actuator[name], actuator[name] === "0" ? "number" : "number level1"]);
  }
  for (const name of ["integrator", "compensator", "monitor"]) {
    const values = of(name);
    if (Number.isFinite(Number(values.work_median_us))) timing.push([name, `${Math.round(values.work_median_us)} (${Math.round(values.work_max_us)}) µs`, "number"]);
  }
  fill("timing", timing);
  const copies = learnt(of("integrator"));
  fill("copies", copies);
  for (const [place, found] of [["inner", inner], ["timing", timing], ["copies", copies]]) $(place).closest("section").hidden = !found.length;
}

// parameters learned by copies of the specimen: each with its deviation and the values in the copies
function learnt(values) {
  const of = (name) => Number(values[LEARNT + name] || 0), rows = [];
  for (const [name] of Object.entries(values).filter(([key]) => key.startsWith(LEARNT) && key.endsWith(".estimate"))) {
    const own = name.slice(LEARNT.length, -".estimate".length), share = (each) => digits(100 * of(`${own}.${each}`) / of(`${own}.initial`));
    rows.push([own.replaceAll("_", " "), `${share("estimate")} ± ${share("deviation")} (${share("released")})`, "number"]);
  }
  if (rows.length) rows.push(["learned from", `${of("learnt")} samples`, "number"]);
  if (of("unexplained")) rows.push(["not explained by the model", `${of("unexplained")} samples`, "number level1"]);
  return rows;
}

function events() {
  const key = JSON.stringify(told.events || []);
  if ($("events").dataset.key === key) return;
  $("events").dataset.key = key;
  $("events").replaceChildren(...(told.events || []).slice().reverse().map((each) => {
    const row = document.createElement("li"), when = document.createElement("time");
    when.textContent = new Date(1000 * each.time).toLocaleTimeString();
    row.append(when, `${each.what}: ${each.words}${each.sample ? ` (sample ${each.sample})` : ""}`);
    return row;
  }));
}

// recordings in the folder, with links to their reports
let looked = "";

async function recordings() {
  if (!heard || told.recorded) return;
  try {
    const answer = await fetch("/recordings");
    if (!answer.ok) return;
    const found = await answer.json(), key = JSON.stringify(found);
    if (key === looked) return;
    looked = key;
    text("folder", found.folder);
    $("recordings").closest("section").hidden = !found.recordings.length;
    $("recordings").replaceChildren(...found.recordings.map((each) => {
      const row = document.createElement("tr"), left = row.insertCell(), right = row.insertCell();
      left.textContent = each.name;
      right.className = "number";
      if (!each.report) return row;
      const link = document.createElement("a");
      Object.assign(link, { href: `report/${encodeURIComponent(each.name)}`, target: "_blank", rel: "noopener", textContent: "report" });
      right.append(link);
      return row;
    }));
  } catch { /* the server does not respond: the page shows this */ }
}

// -- the procedure: its possible acts -----------------------------------------------

let token = "", led = false, asked = "", chosen = "", shownActs = "", shownForm = "";
const HEAD = 6;   // characters of a hash that a person types to arm
const SHOWN = 8;  // characters of the leader's token that every page receives

async function post(path, fields) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Rths-Page": "1", "X-Rths-Operator": token },
    body: JSON.stringify(fields),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

function result(words, done) {
  text("result", words);
  $("result").className = `result${done ? "" : " no"}`;
}

async function act(name, args = {}) {
  const waits = !told.acts.at_once.includes(name);
  if (waits) asked = name;
  result(`${name} ...`, true);
  procedure();
  try {
    const answer = await post("/act", { act: name, arguments: args, seen: told.acts.seen });
    result(answer.done ? `${name}: ${answer.result || "done"}` : answer.reason, answer.done);
  } catch (error) {   // after a timeout of the browser, the act continues and the state shows its result
    result(error instanceof TypeError ? `${name}: this page received no answer. The state above is valid.` : error.message, false);
  }
  if (waits) asked = "";
  procedure();
}

function field(label, attributes) {
  const made = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, attributes);
  made.append(`${label} `, input);
  return [made, input];
}

function button(words, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = words;
  made.addEventListener("click", press);
  return made;
}

// inputs of acts that require them; other acts are performed at once
const NEEDS = {
  take_offsets: (row) => {
    const [label, seconds] = field("duration, s", { type: "number", value: 2, min: 0.1, max: 600, step: 0.1 });
    row.append(label, button("take offsets", () => act("take_offsets", { seconds: seconds.value })));
  },
  confirm_offsets: (row) => {
    const hash = told.acts.offsets_hash, [label, unloaded] = field("the specimen carries no load: tare its force", { type: "checkbox" });
    row.append(`offsets ${hash}`, label, button("confirm offsets", () => act("confirm_offsets", { hash, unloaded: unloaded.checked })));
  },
  sign_for: (row) => told.acts.to_sign.forEach((what) => row.append(button(`sign for: ${what}`, () => act("sign_for", { what })))),
  arm: (row) => {
    const { next_rung: rung, scenario_hash, offsets_hash, engine } = told.acts;
    const [label, typed] = field(`to arm rung ${rung} (${scenario_hash}; engine ${engine}), type ${rung} and the first ${HEAD} characters`, { size: HEAD + 4 });
    const [named, second] = field("second person, if the rig file sets two_persons", { size: 16 });
    row.append(label, ...(rung === "g" ? [named] : []), button("arm", () => {
      if (typed.value.replaceAll(" ", "").toLowerCase() !== rung + scenario_hash.slice(0, HEAD)) result(`rung ${rung} is not armed: type ${rung} ${scenario_hash.slice(0, HEAD)}`, false);
      else act("arm", { rung, scenario_hash, offsets_hash, second: second.value });
    }));
  },
  note: (row) => {
    const [label, words] = field("for the report", { size: 40, maxLength: 1000 });
    row.append(label, button("add note", () => { act("note", { text: words.value }); words.value = ""; }));
  },
};

NEEDS.checklist = (row) => {
  const boxes = told.acts.checklist.map((item) => [item, ...field(item, { type: "checkbox" })]);
  row.append(...boxes.map(([, label]) => label), button(`confirm as ${told.acts.operator}`, async () => {
    for (const [item, , box] of boxes) await act("checklist", { item, answer: box.checked ? "y" : "n" });
  }));
};

// acts that begin a motion: the operator reads the motion and types CLEAR
const MOTIONS = ["check", "position", "run", "resume", "unload"];
for (const name of MOTIONS) {
  NEEDS[name] = (row) => {
    const [label, typed] = field("type CLEAR to start this motion", { size: 8, autocomplete: "off" });
    row.append(`MOTION: ${told.acts.motions[name]} `, label, button(name, () => { act(name, { clear: typed.value }); typed.value = ""; }));
  };
}

// an act without a motion, such as running a rung that does not move the rig, requires no CLEAR
const asks = (name) => name in NEEDS && (!MOTIONS.includes(name) || Boolean(told.acts.motions[name]));

const OF_RUNG = ["rehearse", "position", "arm", "run"];
const label = (name) => name.replaceAll("_", " ");

// the rungs with their verdicts, and the proposed act with its reason
function lead(acts) {
  $("ladder").replaceChildren(...acts.ladder.map(({ name, title, verdict }) => {
    const row = document.createElement("li"), now = name === acts.next_rung;
    const [shape, kind] = { ok: ["\u2713", "good"], differs: ["\u25b2", "warn"] }[verdict] || (verdict ? ["\u25a0", "bad"] : now ? ["\u25b6", "now"] : ["\u25cb", ""]);
    row.className = kind;
    row.textContent = `${shape} ${name} ${title}${verdict ? `: ${verdict}` : ""}`;
    return row;
  }));
  const next = acts.next_act, rung = OF_RUNG.includes(next) && acts.ladder.find(({ name }) => name === acts.next_rung);
  text("next", asked ? `${label(asked)} is under way` : next ? `Next: ${label(next)}${rung ? `, for rung ${rung.name} (${rung.title}: ${rung.words})` : ""}` : "No act is due");
  text("because_next", next === "sign_for" ? acts.possible.position : `${acts.because}${next ? `: ${acts.words[next]}` : ""}`);
}

function procedure() {
  const acts = told.acts;
  $("procedure").hidden = !acts;
  if (!acts) return;
  const mine = acts.leader === token.slice(0, SHOWN);
  led = Boolean(token) && (led || mine);   // a situation sent before this page led names another leader
  if (led && !mine) {
    token = "";
    result(acts.operator ? `${acts.operator} leads this test now` : "no page leads this test now", false);
  }
  $("leading").hidden = Boolean(token) || !told.may_lead;
  text("operator", acts.operator ? `led by ${acts.operator}` : token ? "" : "no page leads the test");
  text("warning", acts.warning);
  const key = JSON.stringify([acts, token, asked]);
  if (key === shownActs) return;
  shownActs = key;
  lead(acts);
  const names = Object.keys(acts.possible).filter((name) => name !== "stop"), whyNot = (name) => acts.possible[name] || (asked && !acts.at_once.includes(name) ? `${label(asked)} is under way` : "");
  const may = names.filter((name) => !whyNot(name)), not = names.filter(whyNot);
  $("acts").replaceChildren(token ? "Possible now:" : `Possible now: ${may.map(label).join(", ")}. Lead this test to act.`, ...(token ? may : []).map((name) => {
    const made = button(label(name), () => asks(name) ? choose(name) : act(name));
    Object.assign(made, { title: acts.words[name], id: `act_${name}`, className: name === acts.next_act ? "first" : "" });
    return made;
  }));
  text("impossible", `Not possible now: ${not.length} acts, with reasons`);
  fill("reasons", not.map((name) => [label(name), whyNot(name), ""]));
  if (asked || acts.possible[chosen]) chosen = "";
  const wanted = chosen || acts.next_act;
  needs(asked || !token || !asks(wanted) ? "" : wanted);
}

function choose(name) {
  chosen = name;
  needs(name);
}

// form of an act; typed input is kept while the situation is unchanged
function needs(name) {
  const { possible, words: _, operator, warning, ...about } = told.acts, form = name && JSON.stringify([name, about]);
  if (form === shownForm) return;
  shownForm = form;
  const row = document.createElement("div");
  row.className = "row";
  if (name) NEEDS[name](row);
  const words = document.createElement("div");
  words.className = "why";
  words.textContent = chosen ? told.acts.words[name] : "";
  $("needs").replaceChildren(...(name ? [row, words] : []));
}

$("code").addEventListener("click", async () => {
  try {
    await post("/code", {});
    result("within 60 s, type the code that the terminal shows", true);
    $("typed").focus();
  } catch (error) {
    result(error.message, false);
  }
});

$("leading").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    token = (await post("/lead", { code: $("typed").value, name: $("name").value })).token;
    led = false;
    result("you lead this test", true);
  } catch (error) {
    result(error.message, false);
  }
  $("typed").value = "";
  procedure();
});

// -- curves -----------------------------------------------------------------------------------------

function axes() {
  const names = [...new Set(curves.names.map((name) => name.split("/")[0]))];
  if (!names.includes(axis)) axis = names[0];
  $("axis").replaceChildren(...names.map((name) => new Option(name, name, false, name === axis)));
}

const LINES = { target: "#c77700", measured: "#1f5fa8", error: "#a3152a", tracking_indicator: "#1d6b3c" };
const plots = {};

function plot(place, names) {
  const box = $(place);
  const options = {
    width: box.clientWidth,
    height: box.clientHeight - 30,
    legend: { live: false },
    scales: { x: { time: false } },
    axes: [{ label: "s", labelSize: 18, size: 34 }, { size: 56 }],
    series: [{}, ...names.map((name) => ({ label: name.replace("_", " "), stroke: LINES[name], width: 1.5, dash: name === "target" ? [6, 4] : [], points: { show: false } }))],
  };
  plots[place] = { names, chart: new uPlot(options, [[], ...names.map(() => [])], box), zoomed: false };
  plots[place].chart.hooks.setSelect = [() => { plots[place].zoomed = true; }];
  box.addEventListener("dblclick", () => { plots[place].zoomed = false; });
}

function shown() {
  const end = reach(), columnsShown = seconds ? Math.round(seconds * curves.servo_rate / per) : end;
  const from = Math.max(0, end - columnsShown);
  const step = Math.max(1, Math.ceil((end - from) / MOST_POINTS));
  return { from, step, to: end };
}

function points(name, from, step, to) {
  const at = PER_CURVE * curves.names.indexOf(name), found = [], [factor] = scale(curves.units[curves.names.indexOf(name)]);
  for (let k = from; k < to; k += step) {
    let low = Infinity, high = -Infinity;
    const end = Math.min(to, k + step);
    for (let j = k; j < end; j++) {
      low = Math.min(low, columns[j][at + LOWEST]);
      high = Math.max(high, columns[j][at + HIGHEST]);
    }
    for (const value of [columns[k][at + FIRST], low, high, columns[end - 1][at + LAST]]) {
      found.push(Number.isFinite(value) ? value * factor : null);
    }
  }
  return found;
}

function times(from, step, to) {
  const found = [], dt = 1 / curves.servo_rate;
  for (let k = from; k < to; k += step) {
    const end = starts[Math.min(to, k + step) - 1] + per - 1;
    for (let i = 0; i < 4; i++) found.push((starts[k] + (end - starts[k]) * i / 3) * dt);
  }
  return found;
}

function draw() {
  if (paused || !curves || !columns.length) return;
  const { from, step, to } = shown(), x = times(from, step, to);
  const unit = (name) => curves.units[curves.names.indexOf(`${axis}/${name}`)], loaded = unit("target") === "N";   // a force axis
  for (const { names, chart, zoomed } of Object.values(plots)) {
    chart.setData([x, ...names.map((name) => points(`${axis}/${loaded && name === "measured" ? "force" : name}`, from, step, to))], !zoomed);
    if (zoomed) chart.redraw();
  }
  text("followed", loaded ? "Force" : "Displacement");
  text("followed_unit", scale(unit("target"))[1]);
  text("error_unit", scale(unit("error"))[1]);
  loop(from, to);
}

function loop(from, to) {
  const canvas = $("loop"), ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== width * ratio) { canvas.width = width * ratio; canvas.height = height * ratio; }
  const pen = canvas.getContext("2d"), at = (name) => PER_CURVE * curves.names.indexOf(`${axis}/${name}`) + LAST;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const xs = [], ys = [];
  for (let k = from; k < to; k++) {
    xs.push(1e3 * columns[k][at("measured")]);
    ys.push(1e-3 * columns[k][at("force")]);
  }
  const span = (values) => Math.max(1e-9, ...values.map(Math.abs).filter(Number.isFinite));
  const wide = span(xs.length > 60000 ? xs.slice(-60000) : xs), tall = span(ys.length > 60000 ? ys.slice(-60000) : ys);
  const px = (x) => width / 2 + x / wide * (width / 2 - 48), py = (y) => height / 2 - y / tall * (height / 2 - 22);
  pen.strokeStyle = "#d5dae1";
  pen.beginPath();
  pen.moveTo(px(-wide), py(0)); pen.lineTo(px(wide), py(0)); pen.moveTo(px(0), py(-tall)); pen.lineTo(px(0), py(tall));
  pen.stroke();
  pen.fillStyle = "#5d6875";
  pen.font = "12px system-ui, sans-serif";
  pen.fillText(`${digits(wide)} mm`, width - 62, py(0) + 16);
  pen.fillText(`${digits(tall)} kN`, px(0) + 6, 14);
  pen.strokeStyle = LINES.measured;
  pen.lineWidth = 1.2;
  pen.beginPath();
  xs.forEach((x, i) => i ? pen.lineTo(px(x), py(ys[i])) : pen.moveTo(px(x), py(ys[i])));
  pen.stroke();
}

// -- a recording ------------------------------------------------------------------------------------

const LOOK_MS = 200;

function play() {
  if (!told.recorded || !columns.length) return;
  if (whole) head = columns.length;   // until the user moves the slider, because a long test arrives in parts
  if (playing) head = Math.min(columns.length, head + Number($("speed").value) * LOOK_MS / 1000 * curves.servo_rate / per);
  if (playing && head >= columns.length) pressed(false);
  Object.assign($("head"), { max: columns.length, value: head });
  show();
}

function pressed(now) {
  playing = now;
  $("play").textContent = playing ? "Stop playing" : "Play";
}

$("play").addEventListener("click", () => {
  whole = false;
  if (!playing && head >= columns.length) head = 1;
  pressed(!playing);
});
$("head").addEventListener("input", (event) => { whole = false; head = Number(event.target.value); show(); draw(); });

// -- controls ---------------------------------------------------------------------------------------

$("axis").addEventListener("change", (event) => { axis = event.target.value; });
$("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.textContent = paused ? "Continue" : "Pause";
  event.target.classList.toggle("on", paused);
});
$("windows").addEventListener("click", (event) => {
  if (!event.target.dataset.window) return;
  seconds = Number(event.target.dataset.window);
  for (const each of $("windows").children) each.classList.toggle("on", each === event.target);
});

function fit() {
  for (const [place, { chart }] of Object.entries(plots)) {
    chart.setSize({ width: $(place).clientWidth, height: $(place).clientHeight - 30 });
  }
}

window.addEventListener("resize", fit);

plot("displacement", ["measured", "target"]);
plot("error", ["error"]);
plot("tracking", ["tracking_indicator"]);
view();
connect();
setInterval(heartbeat, BEAT_MS);
setInterval(age, 200);
setInterval(draw, 200);
setInterval(play, LOOK_MS);
setInterval(recordings, 2000);
