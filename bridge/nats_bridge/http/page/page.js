"use strict";
// Asks the sidecar for its state again and again and shows it. Nodes are made once and changed only where something
// changed, so nothing flickers and nothing that is selected or focused is lost. All text goes through textContent.
// What the state says, and in which units: bridge/nats_bridge/http/status_document.py.

const byId = (id) => document.getElementById(id);
const main = byId("main"), list = byId("rules");
const LEAST_PAUSE = 1000, PATIENCE = 5000; // milliseconds between two questions at least; for one answer at most
const HISTORY_PAUSE = 2000, HISTORY_PAUSE_PER_RULE = 50; // milliseconds between two answers that have the history
const FILTERED_FROM = 9; // rules from which on there is something to filter
const LATE_FROM = 60; // seconds behind that are marked

const SIGNS = { ready: "✓", standby: "‖", waiting: "…", starting: "…", draining: "↓", stopped: "■", failed: "✗", wedged: "✗" };
const WORDS = {
  ready: "running", standby: "standby", waiting: "waits", starting: "starts", draining: "finishes", stopped: "stopped",
  failed: "failed", wedged: "stalled",
};

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** Nodes for items, in their order: those that are there are kept by their key, others are made, the rest removed. */
function keep(parent, items, keyOf, makeNode, update) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let before = null;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = known.get(key);
    if (node === undefined) {
      node = makeNode(item);
      node.dataset.key = key;
    }
    known.delete(key);
    const wanted = before === null ? parent.firstElementChild : before.nextElementSibling;
    if (node !== wanted) parent.insertBefore(node, wanted);
    if (update) update(node, item);
    before = node;
  }
  for (const node of known.values()) node.remove();
}

// ---------------------------------------------------------------- numbers and times, for people

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const PARTS = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function count(value) {
  if (!isNumber(value)) return "–";
  if (value >= 1e5) return SHORT.format(value);
  return value > 0 && value < 10 && !Number.isInteger(value) ? PARTS.format(value) : WHOLE.format(value);
}

function bytes(value) {
  if (!isNumber(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${value >= 100 || unit === 0 ? WHOLE.format(value) : PARTS.format(value)} ${units[unit]}`;
}

function milliseconds(value) {
  if (!isNumber(value)) return "–";
  return value >= 1000 ? seconds(value / 1000) : `${value >= 10 ? WHOLE.format(value) : PARTS.format(value)} ms`;
}

function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value < 10) return `${PARTS.format(value)} s`;
  if (value < 120) return `${WHOLE.format(value)} s`;
  if (value < 7200) return `${WHOLE.format(value / 60)} min`;
  return value < 172800 ? `${WHOLE.format(value / 3600)} h` : `${WHOLE.format(value / 86400)} days`;
}

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

function moment(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  return at.toDateString() === new Date().toDateString() ? TIME.format(at) : DAY.format(at);
}

const plural = (number, one, many = `${one}s`) => `${WHOLE.format(number)} ${number === 1 ? one : many}`;
const spoken = (name) => name.replaceAll("_", " ");
const titled = (name) => spoken(name).replace(/^./, (letter) => letter.toUpperCase());

// ---------------------------------------------------------------- charts

const SVG = "http://www.w3.org/2000/svg";

function chart(kind) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("class", kind);
  drawing.setAttribute("viewBox", "0 0 100 100");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("aria-hidden", "true");
  for (const name of ["under", "trace"]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    drawing.append(path);
  }
  return drawing;
}

/** Draw values, the newest at the right; where there is none, the line has a gap. */
function draw(drawing, values, width) {
  const top = Math.max(...values.filter(isNumber), 0) || 1;
  const step = 100 / Math.max(width - 1, 1), first = 100 - step * (values.length - 1);
  let trace = "", under = "", begun = null, last = 0;
  values.forEach((value, at) => {
    if (!isNumber(value)) {
      if (begun !== null) under += `L${last} 100L${begun} 100Z`;
      begun = null;
      return;
    }
    const x = Math.round((first + step * at) * 100) / 100, y = Math.round((97 - 94 * (value / top)) * 100) / 100;
    trace += `${begun === null ? "M" : "L"}${x} ${y}`;
    under += `${begun === null ? "M" : "L"}${x} ${y}`;
    begun ??= x;
    last = x;
  });
  if (begun !== null) under += `L${last} 100L${begun} 100Z`;
  setAttribute(drawing.children[0], "d", under || "M0 0");
  setAttribute(drawing.children[1], "d", trace || "M0 0");
  drawing.classList.toggle("flat", !values.some((value) => isNumber(value) && value > 0));
}

const SERIES = [
  { key: "rate_in", tone: "in", title: "In, messages per second", show: (value) => `${count(value)}/s` },
  { key: "rate_out", tone: "out", title: "Out, messages per second", show: (value) => `${count(value)}/s` },
  { key: "lag_messages", tone: "lag", title: "Behind, messages", show: count },
  { key: "end_to_end_ms", tone: "late", title: "Stored to written, p99", show: milliseconds },
];

function figure(series) {
  const now = make("b"), top = make("span"), since = make("span"), till = make("span", {}, "now");
  const drawing = chart(`chart ${series.tone}`), cursor = make("span", { class: "cursor", hidden: "" });
  const frame = make("div", { class: "frame" }, drawing, cursor);
  const node = make("figure", { class: "figure" },
    make("figcaption", {}, make("span", {}, series.title), now), frame, make("div", { class: "axis" }, since, top, till));
  const shown = { values: [], interval: 1, pointed: null };
  const show = () => {
    const { values, interval, pointed } = shown;
    const numbers = values.filter(isNumber);
    setText(top, numbers.length ? `highest ${series.show(Math.max(...numbers))}` : "nothing yet");
    setText(since, values.length > 1 ? `${seconds((values.length - 1) * interval)} ago` : "");
    const at = pointed === null ? values.length - 1 : Math.round(pointed * (values.length - 1));
    const when = pointed === null ? "" : `${seconds((values.length - 1 - at) * interval)} ago: `;
    setText(now, values.length ? when + series.show(values[at]) : "–");
  };
  frame.addEventListener("pointermove", (event) => {
    const box = frame.getBoundingClientRect();
    shown.pointed = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    cursor.style.setProperty("left", `${shown.pointed * 100}%`);
    cursor.hidden = false;
    show();
  });
  frame.addEventListener("pointerleave", () => {
    shown.pointed = null;
    cursor.hidden = true;
    show();
  });
  node.show = (values, interval) => {
    Object.assign(shown, { values, interval });
    draw(drawing, values, values.length);
    show();
  };
  return node;
}

// ---------------------------------------------------------------- a rule

const SHOWN_ELSEWHERE = new Set(["name", "kind", "state", "ready", "leader", "condition", "waiting_for", "wedged_s", "error", "counters", "measures", "last_errors", "sources", "copies"]);
const opened = new Set((new URLSearchParams(location.hash.slice(1)).get("open") || "").split(",").filter(Boolean).map(decodeURIComponent));

function writeOpened() {
  const names = [...opened].map((name) => encodeURIComponent(encodeURIComponent(name))).join(",");
  history.replaceState(null, "", names ? `#open=${names}` : location.pathname + location.search);
}

function measureNode(label, tone) {
  const value = make("span", { class: "value" }), drawing = chart(`spark ${tone}`);
  const node = make("span", { class: "measure" }, make("span", { class: "label" }, label), value, drawing);
  node.show = (text, more, values) => {
    setText(value, text);
    if (more) value.append(" ", make("small", {}, more));
    draw(drawing, values, Math.max(values.length, 2));
  };
  return node;
}

function ruleNode(rule) {
  const parts = {
    sign: make("span", { class: "sign" }), name: make("b"), what: make("small"), says: make("span", { class: "says" }),
    in: measureNode("In", "in"), out: measureNode("Out", "out"), lag: measureNode("Behind", "lag"), late: measureNode("Latency", "late"),
  };
  const id = `more-${ruleNode.made++}`;
  const line = make("button", { class: "line", type: "button", "aria-expanded": "false", "aria-controls": id },
    make("span", { class: "who" }, parts.sign, parts.name, parts.what),
    parts.in, parts.out, parts.lag, parts.late, make("span", { class: "chevron", "aria-hidden": "true" }), parts.says);
  const more = make("div", { class: "more", id, hidden: "" });
  const node = make("article", { class: "rule" }, line, more);
  Object.assign(node, { parts, line, more });
  line.addEventListener("click", () => {
    opened[opened.has(node.rule.name) ? "delete" : "add"](node.rule.name);
    writeOpened();
    showRule(node, node.rule);
  });
  return node;
}
ruleNode.made = 0;

/** The native mirrors and sources that a rule watches and that are stalled. */
const stalledCopies = (rule) => (rule.copies || []).filter((copy) => copy.condition === "stalled");

const copyName = (copy) => `${copy.target} ← ${copy.source}${copy.filters?.length ? ` (${copy.filters.join(", ")})` : ""}`;

function copyState(copy) {
  const lag = copy.condition === "stalled" && copy.reported_lag === 0 ? "the server reports lag 0" : "";
  const lost = copy.overtaken ? `${plural(copy.overtaken, "sequence")} removed before they were copied` : "";
  const lacks = copy.missing === null ? "missing unknown" : copy.missing ? `${plural(copy.missing, "message")} missing` : "";
  const does = copy.condition === "stalled" ? `stalled for ${seconds(copy.stalled_seconds)}` : copy.condition;
  return [`${does} at ${WHOLE.format(copy.position)}`, lacks, lag, lost].filter(Boolean).join(", ");
}

function says(rule) {
  if (rule.error) return rule.error;
  if (isNumber(rule.wedged_s)) return `has messages in flight, waits for nothing, and has made no progress for ${seconds(rule.wedged_s)}`;
  if (rule.waiting_for) return `${WORDS[rule.condition] || rule.condition}: ${rule.waiting_for}`;
  const [stalled, ...others] = stalledCopies(rule);
  if (stalled) return `${copyName(stalled)}: ${copyState(stalled)}: ${stalled.reason?.text}${others.length ? `; and ${WHOLE.format(others.length)} more` : ""}`;
  return "";
}

const isAtWork = (rule) => rule.condition === "ready" || rule.condition === "standby";

const hasLag = (rule) => rule.measures && rule.reads_stream !== false && rule.condition !== "standby";

/** How many messages a rule is behind; of one that is stalled, what it has in flight counts, too. */
function behind(rule) {
  const { lag_messages: lag, in_flight: held } = rule.measures || {};
  return (isNumber(lag) ? lag : 0) + (!isAtWork(rule) && isNumber(held) ? held : 0);
}

const isLagUnknown = (rule) => hasLag(rule) && !isNumber(rule.measures?.lag_messages);

/** So many messages behind, as a text; if not all is known, at least so many. */
const behindText = (messages, isUnknown) => isUnknown ? (messages ? `≥ ${count(messages)}` : "?") : count(messages);

function showRule(node, rule) {
  const { parts, line, more } = node;
  node.rule = rule;
  const measures = rule.measures || {}, past = measures.history || {}, series = (key) => past[key] || [];
  const stalled = stalledCopies(rule).length;
  setAttribute(node, "class", `rule ${rule.condition}${stalled ? " stalls" : ""}`);
  setText(parts.sign, stalled && isAtWork(rule) ? "!" : SIGNS[rule.condition] || "?");
  setText(parts.name, rule.name);
  setText(parts.what, [rule.kind, rule.stream, rule.condition === "ready" ? "" : WORDS[rule.condition] || rule.condition,
    rule.leader === true ? "leads" : "", rule.copies ? plural(rule.copies.length, "copy", "copies") : "",
    stalled ? `${WHOLE.format(stalled)} stalled` : ""].filter(Boolean).join(" · "));
  const rate = (value) => isNumber(value) && !rule.copies ? `${count(value)}/s` : "–";
  parts.in.show(rate(measures.rate_in), "", series("rate_in"));
  parts.out.show(rate(measures.rate_out), "", series("rate_out"));
  const isLate = isNumber(measures.lag_seconds) && measures.lag_seconds >= LATE_FROM;
  parts.lag.classList.toggle("care", isLate);
  const shown = rule.copies ? count(rule.copies.reduce((all, copy) => all + (copy.missing || 0), 0)) : hasLag(rule) ? behindText(behind(rule), isLagUnknown(rule)) : "–";
  parts.lag.show(shown, measures.lag_seconds > 0 && behind(rule) ? seconds(measures.lag_seconds) : "", series("lag_messages"));
  const late = measures.end_to_end_ms;
  parts.late.show(late ? milliseconds(late.p50) : "–", late ? `p99 ${milliseconds(late.p99)}` : "", series("end_to_end_ms"));
  setText(parts.says, says(rule));
  setHidden(parts.says, !says(rule));
  setAttribute(line, "aria-label", [`${rule.name}: ${WORDS[rule.condition] || rule.condition}`, says(rule),
    isNumber(measures.rate_in) && !rule.copies ? `${count(measures.rate_in)} in and ${count(measures.rate_out)} out per second` : "",
    hasLag(rule) && isNumber(measures.lag_messages) ? `${shown} behind` : ""].filter(Boolean).join(", "));
  const isOpen = opened.has(rule.name);
  setAttribute(line, "aria-expanded", String(isOpen));
  setHidden(more, !isOpen);
  if (isOpen) showMore(more, rule, measures, past);
}

function showMore(more, rule, measures, past) {
  if (!more.firstChild) {
    const charts = make("div", { class: "charts" }, ...SERIES.map(figure));
    const facts = make("dl", { class: "facts" }), counters = make("dl", { class: "counters" });
    const errors = make("ul", { class: "errors" }), none = make("p", { class: "nothing" }, "None since the start.");
    const part = (title, ...nodes) => make("div", {}, make("h3", {}, title), ...nodes);
    const copies = make("ul", { class: "copies" });
    more.append(charts, copies, make("div", { class: "lists" },
      part("Now", facts), part("Last errors", errors, none), part("Counted since the start", counters)));
    Object.assign(more, { charts, copies, facts, counters, errors, none });
  }
  setHidden(more.charts, Boolean(rule.copies));
  setHidden(more.copies, !rule.copies?.length);
  showCopies(more.copies, rule.copies || []);
  SERIES.forEach((series, at) => more.charts.children[at].show(past[series.key] || [], past.interval_s || 1));
  const late = measures.publish_ms;
  const shown = [
    ["State", WORDS[rule.condition] || rule.condition],
    ["Leader", rule.leader === null || rule.leader === undefined ? null : rule.leader ? "this replica" : "another replica"],
    ...Object.entries(rule).filter(([name]) => !SHOWN_ELSEWHERE.has(name)).map(([name, value]) => [titled(name), plainText(value)]),
    ...(rule.sources || []).map((source) => [`From ${source.name}`, Object.entries(source).filter(([name, value]) => name !== "name" && value !== false && value !== null).map(([name, value]) => value === true ? spoken(name) : `${spoken(name)} ${plainText(value)}`).join(", ")]),
    ["In, all in all", isNumber(measures.messages_in) && !rule.copies ? `${plural(measures.messages_in, "message")}, ${bytes(measures.bytes_in)}` : null],
    ["Out, all in all", isNumber(measures.messages_out) && !rule.copies ? `${plural(measures.messages_out, "message")}, ${bytes(measures.bytes_out)}` : null],
    ["In flight", isNumber(measures.in_flight) ? WHOLE.format(measures.in_flight) : null],
    ["Last progress", isNumber(measures.seconds_since_progress) ? `${seconds(measures.seconds_since_progress)} ago` : null],
    ["Publishing takes", late ? `${milliseconds(late.p50)}, p99 ${milliseconds(late.p99)}` : null],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  pairs(more.facts, shown);
  const counted = Object.entries(rule.counters || {}).filter(([, value]) => value);
  keep(more.counters, counted, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, spoken(name)), make("dd")),
    (node, [, value]) => setText(node.lastChild, WHOLE.format(value)));
  const errors = [...(rule.last_errors || [])].reverse();
  setHidden(more.none, errors.length > 0);
  keep(more.errors, errors.map((error, at) => [errors.length - at, error]), ([at, error]) => `${error.at} ${error.event} ${at}`,
    ([, error]) => make("li", {}, make("time", { datetime: error.at }, moment(error.at)), " ", make("code", {}, error.event), make("span", {}, error.reason || "")));
}

function showCopies(parent, copies) {
  keep(parent, copies, (copy) => [copy.target, copy.source, copy.api, copy.entry].join("\n"), () => {
    const parts = { sign: make("span", { class: "sign" }), name: make("b"), state: make("small"), why: make("p"), remedy: make("p"), leader: make("p") };
    return Object.assign(make("li", {}, ...Object.values(parts)), { parts });
  }, (node, copy) => {
    const { parts } = node;
    setAttribute(node, "class", copy.condition);
    setText(parts.sign, { complete: "✓", behind: "…", stalled: "✗" }[copy.condition] || "?");
    setText(parts.name, copyName(copy));
    setText(parts.state, copyState(copy));
    setText(parts.why, copy.reason ? `Likely: ${copy.reason.text}` : "");
    setText(parts.remedy, copy.reason ? `Remedy: ${copy.reason.remedy}` : "");
    setText(parts.leader, copy.reason && copy.step_down ? `Step down: ${copy.step_down}` : "");
    for (const part of [parts.why, parts.remedy, parts.leader]) setHidden(part, !part.textContent);
  });
}

function plainText(value) {
  if (value === null || value === undefined || value === "") return null;
  if (isNumber(value)) return WHOLE.format(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A list of names and values, as pairs of dt and dd. */
function pairs(parent, shown) {
  const named = parent.shown || (parent.shown = new Map());
  const names = shown.map(([name]) => name);
  if (names.join("\n") !== [...named.keys()].join("\n")) {
    named.clear();
    parent.replaceChildren();
    for (const name of names) {
      const value = make("dd");
      named.set(name, value);
      parent.append(make("dt", {}, name), value);
    }
  }
  for (const [name, value] of shown) setText(named.get(name), value);
}

// ---------------------------------------------------------------- the whole page

const REFUSED = "The changed configuration is refused, the previous one is in force";
let state = null, lastAnswer = 0, historyDue = 0, goneSince = 0, isPaused = false, asking = null;
const filter = { text: "", trouble: false };
const hasTrouble = (rule) => !isAtWork(rule) || stalledCopies(rule).length > 0 || (rule.measures?.lag_seconds ?? 0) >= LATE_FROM;
const isShown = (rule) => (!filter.trouble || hasTrouble(rule)) &&
  (!filter.text || [rule.name, rule.kind, rule.stream].some((text) => String(text || "").toLowerCase().includes(filter.text)));

/** Why the changed configuration is not in force: no reason, or one. */
function refusal() {
  const { last_reload: reload } = state.config;
  return reload?.result === "refused" ? [`reload: ${reload.reason}`] : [];
}

function headline() {
  if (goneSince) return state ? "The sidecar does not answer" : "No answer from the sidecar";
  if (state.draining) return "Draining: it finishes messages in flight";
  const all = state.rules.length, away = state.rules.filter((rule) => !isAtWork(rule)).length;
  if (!all) return state.ready ? "There are no rules" : "Starting";
  if (away) return away === all && all > 1 ? `None of ${all} rules is running` : `${away} of ${plural(all, "rule")} ${away === 1 ? "is" : "are"} not running`;
  if (!state.ready) return "Not ready";
  if (refusal().length) return REFUSED;
  const stalled = state.rules.flatMap(stalledCopies).length;
  if (stalled) return `${plural(stalled, "native copy", "native copies")} ${stalled === 1 ? "is" : "are"} stalled`;
  return all === 1 ? "The rule is running" : `All ${all} rules are running`;
}

function show() {
  const title = headline();
  if (byId("headline").textContent !== title) {
    setText(byId("said"), title);
    setText(byId("headline"), title);
  }
  main.classList.toggle("gone", goneSince > 0);
  if (state) {
    showSidecar();
    showTotals();
    showRules();
    showConnections();
    showConfig();
  }
  showAlarm();
  document.title = `${goneSince ? "gone" : state.ready ? "ready" : "not ready"} · ${state ? state.name : "nats-bridge"}`;
  setAttribute(main, "aria-busy", "false");
}

function showSidecar() {
  setText(byId("name"), state.name);
  setText(byId("about"), `nats-bridge ${state.version}, up ${seconds(state.uptime_s)}`);
}

function showAlarm() {
  const alarm = byId("alarm"), reasons = goneSince || !state ? [] : [...state.why_not_ready, ...refusal()];
  setHidden(alarm, !goneSince && !reasons.length);
  alarm.classList.toggle("gone", goneSince > 0);
  const shownSince = lastAnswer ? ` What is shown is from ${TIME.format(lastAnswer)}.` : "";
  setText(byId("alarm-title"), goneSince ? `No answer since ${TIME.format(goneSince)}; still asking.${shownSince}` : state?.ready ? REFUSED : "Not ready");
  keep(byId("reasons"), reasons, (reason) => reason, (reason) => make("li", {}, reason));
}

function showTotals() {
  const rules = state.rules, sum = (key) => {
    const numbers = rules.map((rule) => rule.measures?.[key]).filter(isNumber);
    return numbers.length ? numbers.reduce((a, b) => a + b, 0) : null;
  };
  const working = rules.filter((rule) => rule.condition === "ready").length, standing = rules.filter((rule) => rule.condition === "standby").length;
  setHidden(byId("totals"), !rules.length);
  setText(byId("total-ready"), `${working} of ${rules.length}`);
  setText(byId("total-standing"), standing ? `${standing} on standby` : "");
  setText(byId("total-in"), sum("rate_in") === null ? "–" : `${count(sum("rate_in"))}/s`);
  setText(byId("total-out"), sum("rate_out") === null ? "–" : `${count(sum("rate_out"))}/s`);
  const all = rules.reduce((messages, rule) => messages + behind(rule), 0);
  setText(byId("total-lag"), rules.some(hasLag) ? behindText(all, rules.some(isLagUnknown)) : "–");
}

function showRules() {
  const rules = state.rules;
  setHidden(byId("filters"), rules.length < FILTERED_FROM);
  setHidden(byId("heads"), !rules.some(isShown));
  keep(list, rules, (rule) => rule.name, ruleNode, (node, rule) => {
    setHidden(node, !isShown(rule));
    if (!node.hidden) showRule(node, rule);
  });
  const none = byId("none");
  setHidden(none, rules.some(isShown));
  setText(none, rules.length ? "No rule is left by this filter." : "There are no rules yet.");
}

function showConnections() {
  keep(byId("connections"), state.connections, (link) => link.name, () => {
    const parts = { sign: make("span", { class: "sign" }), name: make("b"), more: make("small") };
    return Object.assign(make("div", { class: "connection" }, parts.sign, parts.name, parts.more), { parts });
  }, ({ parts }, link) => {
    setAttribute(parts.sign, "class", `sign ${link.connected ? "ready" : "failed"}`);
    setText(parts.sign, link.connected ? "✓" : "✗");
    setText(parts.name, `${link.name}: ${link.connected ? `nats-server ${link.server_version} at ${link.server}` : "not connected"}`);
    const error = link.last_error ? `last error${link.last_error_at ? ` at ${moment(link.last_error_at)}` : ""}: ${link.last_error}` : "";
    const failed = (link.failed_attempts || []).map((each) => `${each.server} failed ${plural(each.count, "time")}: ${each.reason}`);
    setText(parts.more, [link.servers.join(", "), link.untested_server, link.reconnects ? plural(link.reconnects, "reconnect") : "", error, ...failed].filter(Boolean).join(" · "));
  });
}

function showConfig() {
  const { path, hash, loaded_at, last_reload: reload } = state.config;
  const changed = reload && reload.changed && reload.changed.length ? ` (${reload.changed.join(", ")})` : "";
  pairs(byId("config"), [
    ["File", path], ["Content", hash ? String(hash).replace(/^sha256:/, "").slice(0, 12) : null], ["Loaded", loaded_at ? moment(loaded_at) : null],
    ["Last reload", reload ? `${reload.result} at ${moment(reload.at)}${changed}` : "none"],
    ["Asked for by", reload ? reload.asked_by : null], ["Refused", reload ? reload.reason : null], ["Started", moment(state.started_at)],
  ].filter(([, value]) => value));
}

/** The recent history is most of the state, and changes the least: it is asked for now and then, and kept. */
function takeOverHistory(rules, before) {
  const known = new Map(before.map((rule) => [rule.name, rule.measures?.history]));
  for (const rule of rules) if (rule.measures && known.has(rule.name)) rule.measures.history = known.get(rule.name);
}

async function ask() {
  clearTimeout(asking);
  const began = performance.now();
  try {
    const whole = began >= historyDue;
    const answer = await fetch(whole ? "status" : "status?history=no", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const reported = await answer.json();
    if (whole) historyDue = performance.now() + Math.max(HISTORY_PAUSE, HISTORY_PAUSE_PER_RULE * reported.rules.length);
    else takeOverHistory(reported.rules, state ? state.rules : []);
    state = reported;
    lastAnswer = Date.now();
    goneSince = 0;
  } catch {
    goneSince ||= Date.now();
  }
  show();
  setText(byId("updated"), goneSince ? "" : isPaused ? `Paused at ${TIME.format(lastAnswer)}` : `Updated ${TIME.format(lastAnswer)}`);
  // A large state on a busy machine is asked for less often: an open page must not cost throughput.
  clearTimeout(asking);
  if (!isPaused && !document.hidden) asking = setTimeout(ask, Math.max(LEAST_PAUSE, 10 * (performance.now() - began)));
}

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  setAttribute(byId("pause"), "aria-pressed", String(isPaused));
  setText(byId("pause"), isPaused ? "Resume" : "Pause");
  if (isPaused) {
    clearTimeout(asking);
    setText(byId("updated"), `Paused at ${TIME.format(lastAnswer)}`);
  } else ask();
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("text").addEventListener("input", (event) => {
  filter.text = event.target.value.trim().toLowerCase();
  if (state) showRules();
});
byId("trouble").addEventListener("change", (event) => {
  filter.trouble = event.target.checked;
  if (state) showRules();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !isPaused) ask();
});
ask();
