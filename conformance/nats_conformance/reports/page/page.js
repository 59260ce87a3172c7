"use strict";
// What the report says, and how it is shown. Cells are [outcome, expectation, observation, reason, ms, mismatches,
// divergences], each but the first and the last as a number into a pool; see conformance/nats_conformance/reports/page_data.py.
const report = JSON.parse(document.getElementById("data").textContent);
const { subjects, cases, cells, outcomes, clauses } = report;
const [OUTCOME, EXPECTATION, OBSERVATION, REASON, MILLISECONDS, MISMATCHES, DIVERGENCES] = [0, 1, 2, 3, 4, 5, 6];
const byId = (id) => document.getElementById(id);
const matrix = byId("matrix"), panel = byId("panel");

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// ---------------------------------------------------------------- state, and its address

const state = { q: "", outcome: new Set(), level: "", doc: "", differ: false, hide: new Set(), cases: [], case: "", subject: "" };

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const listed = (name) => new Set((given.get(name) || "").split(",").filter(Boolean));
  Object.assign(state, {
    q: given.get("q") || "", outcome: listed("outcome"), level: given.get("level") || "", doc: given.get("doc") || "",
    differ: given.get("differ") === "1", hide: listed("hide"), cases: [...listed("cases")], case: given.get("case") || "", subject: given.get("subject") || "",
  });
}

const encoded = (text) => encodeURIComponent(text).replace(/%2F/g, "/").replace(/%2C/g, ",").replace(/%20/g, "+");
const addressOf = (given) => "#" + Object.entries(given).filter(([, value]) => value).map(([name, value]) => `${name}=${encoded(value)}`).join("&");

function address() {
  return addressOf({
    q: state.q, outcome: [...state.outcome].join(","), level: state.level, doc: state.doc, differ: state.differ ? "1" : "",
    hide: [...state.hide].join(","), cases: state.cases.join(","), case: state.case, subject: state.case && state.subject,
  });
}

function writeAddress(isNew = false) {
  if (address() === (location.hash || "#")) return;
  history[isNew ? "pushState" : "replaceState"](null, "", address());
}

// ---------------------------------------------------------------- the matrix

const versionOf = (column) => { const { version, server } = subjects[column]; return server && server !== version ? `${version} on ${server}` : version; };
const isShown = (column) => !state.hide.has(subjects[column].kind);
const shownColumns = () => subjects.map((_, column) => column).filter(isShown);
const outcomeOf = (row, column) => (cells[row][column] ? outcomes[cells[row][column][OUTCOME]] : null);
const keyOf = (row, column) => outcomeOf(row, column)?.key ?? "unrecorded";
const wordOf = (row, column) => outcomeOf(row, column)?.name ?? "no record";
const reasonOf = (cell) => (cell && cell[REASON] >= 0 ? report.texts[cell[REASON]] : "");
const rows = [], haystacks = [];

function haystack(row) {
  if (!haystacks[row]) {
    const each = cases[row];
    const reasons = new Set(cells[row].map(reasonOf));
    const parts = [each.id, each.title, clauses[each.clause].name, each.quote, each.scenario, each.kd, [...reasons]];
    haystacks[row] = (parts.join(" ") + JSON.stringify([each.streams, each.steps])).toLowerCase();
  }
  return haystacks[row];
}

function versionsDiffer(row) {
  const seen = new Set();
  for (const column of shownColumns()) {
    const cell = cells[row][column];
    if (!cell || !(cell[EXPECTATION] >= 0)) continue;
    const key = keyOf(row, column);
    seen.add(`${cell[EXPECTATION]} ${key === "fail" || key === "errored" ? key : ""}`);
  }
  return seen.size > 1;
}

function cellNode(row, column) {
  const key = keyOf(row, column), cell = cells[row][column];
  return make("div", {
    class: `cell ${key}`, role: "gridcell", tabindex: -1, "data-column": column, "data-version": versionOf(column),
    "aria-label": `${subjects[column].label}: ${wordOf(row, column)}`, title: `${subjects[column].label}: ${wordOf(row, column)}${reasonOf(cell) ? "\n" + reasonOf(cell) : ""}`,
  }, outcomeOf(row, column)?.sign ?? report.noRecord);
}

function rowNode(row) {
  const each = cases[row], made = [];
  let kind = null;
  for (const column of shownColumns()) {
    if (subjects[column].kind !== kind) {
      kind = subjects[column].kind;
      made.push(make("span", { class: "kind", "aria-hidden": "true" }, kind));
    }
    made.push(cellNode(row, column));
  }
  const head = make("div", { class: "case", role: "rowheader" }, make("b", {}, each.title),
    make("small", {}, each.id, make("em", {}, each.level)));
  return make("div", { class: "row", role: "row", "data-row": row }, head, ...made);
}

function heads() {
  const columns = shownColumns(), made = [make("span", { class: "corner", role: "columnheader" }, "Case")];
  let begin = 0;
  for (let at = 1; at <= columns.length; at++) {
    if (at < columns.length && subjects[columns[at]].kind === subjects[columns[begin]].kind) continue;
    made.push(make("span", { class: "kind", style: `grid-column: ${begin + 2} / span ${at - begin}`, "aria-hidden": "true" }, subjects[columns[begin]].kind));
    begin = at;
  }
  columns.forEach((column, at) => {
    const { version, server, label } = subjects[column];
    made.push(make("span", { class: "version", role: "columnheader", style: `grid-column: ${at + 2}`, "aria-label": label, title: label },
      version, server && server !== version ? make("small", {}, `on ${server}`) : null));
  });
  return make("div", { class: "heads", role: "row" }, ...made);
}

function buildMatrix() {
  matrix.style.setProperty("--columns", shownColumns().length);
  matrix.replaceChildren(heads());
  rows.length = 0;
  clauses.forEach((clause, number) => {
    const members = cases.map((_, row) => row).filter((row) => cases[row].clause === number);
    const link = clause.link ? make("a", { href: clause.link, target: "_blank", rel: "noopener" }, clause.document) : null;
    const group = make("section", { class: "group", role: "rowgroup", "data-clause": number },
      make("div", { class: "clause" }, make("b", {}, clause.name), make("span"), link));
    for (const row of members) group.append((rows[row] = rowNode(row)));
    matrix.append(group);
  });
  buildSummaries();
  layOut();
}

function filter() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const columns = shownColumns(), found = clauses.map(() => 0);
  let total = 0;
  cases.forEach((each, row) => {
    const isLeft = words.every((word) => haystack(row).includes(word)) && (!state.level || each.level === state.level)
      && (!state.cases.length || state.cases.some((pattern) => isMeant(pattern, each.id)))
      && (!state.doc || clauses[each.clause].document === state.doc) && (!state.differ || versionsDiffer(row))
      && (!state.outcome.size || columns.some((column) => state.outcome.has(keyOf(row, column))));
    if (isLeft) { found[each.clause]++; total++; }
    rows[row].hidden = !isLeft;
    for (const cell of rows[row].querySelectorAll(".cell")) {
      cell.classList.toggle("dim", state.outcome.size > 0 && !state.outcome.has(keyOf(row, +cell.dataset.column)));
    }
  });
  for (const group of matrix.querySelectorAll(".group")) {
    const number = +group.dataset.clause;
    group.hidden = !found[number];
    group.querySelector(".clause span").textContent = `${found[number]} case${found[number] === 1 ? "" : "s"}`;
  }
  const isFiltered = state.q || state.outcome.size || state.level || state.doc || state.differ || state.hide.size || state.cases.length;
  byId("shown").textContent = total === cases.length ? `${total} cases` : `${total} of ${cases.length} cases${state.cases.length ? `: ${state.cases.join(", ")}` : ""}`;
  byId("clear").hidden = !isFiltered;
  byId("none").hidden = total > 0;
  matrix.hidden = !total;
  if (!matrix.querySelector('[tabindex="0"]')) rove(matrix.querySelector(".row:not([hidden]) .cell"));
}

function layOut() {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize), columns = shownColumns().length;
  const room = matrix.parentElement.clientWidth / rem - 4;
  matrix.classList.toggle("chipped", room < 13 + columns * 1.75);
  matrix.classList.toggle("dense", room >= 13 + columns * 1.75 && room < 17 + columns * 3.4);
}

// ---------------------------------------------------------------- above the cases: features, changes, statements, runs

/** Whether a pattern means a case, as with `--select`. */
const isMeant = (pattern, id) => pattern.includes("*") ? new RegExp(`^${quoted(pattern).replaceAll("\\*", ".*")}$`).test(id)
  : id === pattern || id.startsWith(pattern.replace(/\/?$/, "/"));
const rowsOf = (patterns) => cases.flatMap(({ id }, row) => (patterns.some((pattern) => isMeant(pattern, id)) ? [row] : []));
const isOlder = (version, other) => version.localeCompare(other, "en", { numeric: true }) < 0;
const features = Object.entries(report.features).map(([group, entries]) => [group, entries.map((entry) => ({ ...entry, rows: rowsOf(entry.cases) }))]);
const statements = report.statements.map(({ adr, statements }) => [adr, statements.map((entry) => ({ ...entry, rows: rowsOf(entry.cases || []) }))]);
const featureOf = [];
for (const [, entries] of features) for (const { name, rows } of entries) for (const row of rows) featureOf[row] = name;
const others = cases.flatMap(({ id }, row) => (featureOf[row] ? [] : [[id, row]]));
if (others.length) features.push(["", [{ name: "Other cases", cases: others.map(([id]) => id), rows: others.map(([, row]) => row) }]]);
features.unshift(["", [{ name: "All cases", cases: ["*"], rows: cases.map((_, row) => row) }]]);

function summaryCell({ cases: patterns, rows: members, since }, column) {
  const { label, version, kind } = subjects[column];
  const count = (...keys) => members.filter((row) => keys.includes(keyOf(row, column))).length;
  const bad = count("fail", "errored"), other = count("difference", "divergence"), played = bad + other + count("pass"), away = count("inapplicable");
  const isAbsent = since && isOlder(version, since);
  const [key, sign, text, word] = bad ? ["fail", "✗", `${bad}/${played}`, "fail"]
    : isAbsent || (!played && away) ? ["inapplicable", "–", "", isAbsent || kind === "native" ? "not supported" : "n/a"]
    : other ? [count("difference") ? "difference" : "divergence", count("difference") ? "≠" : "≈", `${other}/${played}`, "differ"]
    : played ? ["pass", "✓", String(played), "supported"] : ["skipped", report.noRecord, "", "not played"];
  const title = `${label}: ${text.replace("/", " of ")}${text && " "}${word}${away && played ? `, ${away} not about this version` : ""}`;
  const outcome = { fail: "fail,errored", difference: "difference", divergence: "divergence" }[key];
  return make("td", {}, make("a", { class: `sum ${key}`, href: addressOf({ cases: patterns.join(","), outcome }), title, "aria-label": title, style: `--share: ${100 * other / played}%` },
    make("b", {}, sign), text, make("small", {}, word)));
}

function summaryTable(corner, groups) {
  const columns = shownColumns(), hasKinds = new Set(columns.map((column) => subjects[column].kind)).size > 1;
  const heads = columns.map((column) => make("th", { scope: "col" }, hasKinds ? make("small", {}, subjects[column].kind) : null, versionOf(column)));
  const line = (entry) => {
    const text = entry.name ?? entry.text;
    return make("tr", {}, make("th", { scope: "row" }, entry.rows.length ? make("a", { href: addressOf({ cases: entry.cases.join(",") }) }, text) : text,
      entry.untested ? make("small", {}, `No case: ${entry.untested}`) : null), ...(entry.rows.length ? columns.map((column) => summaryCell(entry, column)) : [make("td", { colspan: columns.length })]));
  };
  const bodies = groups.filter(([, entries]) => entries.some(({ rows }) => rows.length)).map(([title, entries]) => make("tbody", {},
    title ? make("tr", {}, make("th", { scope: "rowgroup", class: "title" }, title), make("td", { colspan: columns.length })) : null,
    ...entries.filter(({ rows, untested }) => rows.length || untested).map(line)));
  return make("div", { class: "scroll" }, make("table", { class: columns.length > 8 ? "summary short" : "summary" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, corner), ...heads)), ...bodies));
}

/** What changed between two columns: reasons by feature, of cases of which different things are expected. */
function changesNode(before, after) {
  const found = new Map(features.flatMap(([, entries]) => entries.map(({ name }) => [name, new Map()])));
  let total = 0;
  cases.forEach((_, row) => {
    const [old, now] = [cells[row][before], cells[row][after]];
    if (!(old?.[OBSERVATION] >= 0 && now?.[OBSERVATION] >= 0) || old[EXPECTATION] === now[EXPECTATION]) return;
    const reasons = found.get(featureOf[row] ?? "Other cases"), reason = reasonOf(old) || reasonOf(now);
    reasons.set(reason, [...(reasons.get(reason) || []), cases[row]]);
    total++;
  });
  const added = features.flatMap(([, entries]) => entries.filter(({ since, rows }) => since && rows.length
    && isOlder(subjects[before].version, since) && !isOlder(subjects[after].version, since)).map(({ name }) => name));
  const item = ([reason, members]) => make("li", {}, make("a", { href: members.length > 1 ? addressOf({ q: reason }) : addressOf({ case: members[0].id }), title: members[0].title }, reason || members[0].title),
    members.length > 1 ? ` (${members.length} cases)` : null);
  return make("details", {}, make("summary", {}, make("b", {}, `${versionOf(before)} → ${versionOf(after)}`), ` ${total} cases differ`),
    added.length ? make("p", {}, make("b", {}, "New: "), added.join(", ")) : null,
    ...[...found].filter(([, reasons]) => reasons.size).flatMap(([name, reasons]) => [make("h4", {}, name), make("ul", {}, ...[...reasons].map(item))]));
}

function buildSummaries() {
  byId("features").replaceChildren(summaryTable("Feature", features));
  byId("statements").lastElementChild.replaceChildren(summaryTable("Statement", statements));
  byId("statements").hidden = !byId("statements").querySelector("tbody");
  const line = subjects.map((_, column) => column).filter((column) => subjects[column].kind === subjects[0].kind)
    .sort((a, b) => (isOlder(subjects[a].version, subjects[b].version) ? 1 : -1));
  const changes = line.slice(1).map((before, at) => changesNode(before, line[at]));
  byId("changes").hidden = !changes.length;
  byId("changes").replaceChildren(byId("changes").firstElementChild, ...changes);
}

function buildSite({ home, runs, version, license }) {
  if (home) byId("home").replaceChildren(make("a", { href: home }, "nats-conform"), ": one run");
  byId("runs").hidden = !runs;
  if (!runs) return;
  const heads = ["Run", "Result", "Suite", "Catalogue", "Cases", "Subjects of test", "Raw results"];
  const line = ({ folder, run, passed, counts, cases, whole, subjects }) => [make("a", { href: `${folder}index.html` }, dateOf(run.time)),
    passed ? "passed" : counts.fail + counts.errored ? "failed" : "not complete", run.suite, run.catalogue_version ?? run.catalogue?.slice(0, 12),
    `${cases}${whole ? "" : " selected"}`, subjects.join(", "),
    ["report.json", "history.jsonl"].flatMap((name) => [make("a", { href: folder + name }, name), " "])];
  byId("runs").append(
    make("p", { class: "about" }, "All results above are in ", make("a", { href: "report.json" }, "report.json"), `, version ${version}, licence ${license}.`
      + " The history of a run has every observed byte. A run keeps its address, and the address of a case on this page always leads to its newest results."),
    make("div", { class: "scroll" }, make("table", { class: "summary" }, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...runs.map((run) => make("tr", {}, ...line(run).map((cell) => make("td", {}, ...[cell].flat()))))))));
}

// ---------------------------------------------------------------- moving and opening

function rove(cell) {
  for (const each of matrix.querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
  if (cell) cell.tabIndex = 0;
}

const cellAt = (row, column) => rows[row]?.querySelector(`[data-column="${column}"]`);

function move(cell, key) {
  const columns = shownColumns(), at = columns.indexOf(+cell.dataset.column);
  const visible = [...matrix.querySelectorAll(".row:not([hidden])")].filter((row) => !row.parentElement.hidden);
  const line = visible.indexOf(cell.parentElement);
  const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -at], End: [0, columns.length - 1 - at] }[key];
  const row = visible[Math.min(Math.max(line + down, 0), visible.length - 1)];
  const column = columns[Math.min(Math.max(at + across, 0), columns.length - 1)];
  const next = row.querySelector(`[data-column="${column}"]`);
  rove(next);
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  if (!panel.hidden) open(+row.dataset.row, column);
}

const isOverlay = () => !matchMedia("(min-width: 1180px)").matches;

function open(row, column, { isNew = false, isFocused = false } = {}) {
  const wasClosed = panel.hidden;
  state.case = cases[row].id;
  state.subject = subjects[column].label;
  for (const each of matrix.querySelectorAll('[aria-selected="true"]')) each.removeAttribute("aria-selected");
  cellAt(row, column)?.setAttribute("aria-selected", "true");
  rove(cellAt(row, column));
  showPanel(row, column);
  panel.hidden = false;
  document.body.classList.add("opened");
  panel.scrollTop = 0;
  if (wasClosed && !isOverlay()) {
    layOut();
    cellAt(row, column)?.scrollIntoView({ block: "nearest" });
  }
  if (isFocused || isOverlay()) byId("panel-title").focus({ preventScroll: true });
  writeAddress(isNew && wasClosed);
}

function close() {
  if (panel.hidden) return;
  const cell = matrix.querySelector('[aria-selected="true"]');
  panel.hidden = true;
  document.body.classList.remove("opened");
  cell?.removeAttribute("aria-selected");
  state.case = state.subject = "";
  layOut();
  writeAddress();
  cell?.focus({ preventScroll: true });
  cell?.scrollIntoView({ block: "nearest" });
}

/** The cell that shows most of a row: what failed, what differs, what was played. */
function tellingColumn(row) {
  const order = ["fail", "errored", "divergence", "difference", "skipped", "pass", "inapplicable", "unrecorded"];
  return shownColumns().sort((a, b) => order.indexOf(keyOf(row, a)) - order.indexOf(keyOf(row, b)))[0];
}

// ---------------------------------------------------------------- bytes, and where they differ

const strictUtf8 = new TextDecoder("utf-8", { fatal: true });
const HOLE = /<(?:time|identity|int -?\d+\.\.-?\d+)>/g;

/** The character that begins at this byte, and how many bytes it has; null where it is none that can be shown. */
function character(bytes, at) {
  const first = bytes.charCodeAt(at);
  const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (!length || at + length > bytes.length) return null;
  try {
    const text = strictUtf8.decode(Uint8Array.from(bytes.slice(at, at + length), (each) => each.charCodeAt(0)));
    return /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u.test(text) ? [text, length] : null;
  } catch { return null; }
}

/** Bytes such that every one of them is visible: line ends, tabs, spaces and what has no picture. */
function spelt(bytes) {
  const made = [];
  let plain = "";
  const add = (kind, text, after = "") => {
    if (plain) made.push(plain);
    plain = "";
    made.push(make("i", { class: kind }, text), after);
  };
  for (let at = 0; at < bytes.length; at++) {
    const code = bytes.charCodeAt(at);
    if (bytes.startsWith("\r\n", at)) { add("end", "\\r\\n", "\n"); at++; }
    else if (code === 0x0a) add("odd", "\\n", "\n");
    else if (code === 0x0d) add("odd", "\\r");
    else if (code === 0x09) add("odd", "\\t");
    else if (code === 0x20) add("space", " ");
    else if (code > 0x20 && code < 0x7f) plain += bytes[at];
    else {
      const found = code < 0x80 ? null : character(bytes, at);
      if (found) { plain += found[0]; at += found[1] - 1; }
      else add("odd", "\\x" + code.toString(16).padStart(2, "0"));
    }
  }
  return plain ? [...made, plain] : made;
}

/** A byte text with its placeholders, parts of it marked; marks are [from, to] and in order. */
function bytesNode(bytes, marks = [], { isBytes = true, hasHoles = false } = {}) {
  const write = (text) => {
    if (!isBytes) return [text];
    if (!hasHoles) return spelt(text);
    const made = [];
    let end = 0;
    for (const hole of text.matchAll(HOLE)) {
      made.push(...spelt(text.slice(end, hole.index)), make("i", { class: "hole" }, hole[0]));
      end = hole.index + hole[0].length;
    }
    return [...made, ...spelt(text.slice(end))];
  };
  const made = make("pre", { class: "bytes" });
  let end = 0;
  for (const [from, to] of marks) {
    made.append(...write(bytes.slice(end, from)));
    made.append(from === to ? make("mark", { class: "gap", title: "something is missing here" }) : make("mark", {}, ...write(bytes.slice(from, to))));
    end = to;
  }
  made.append(...write(bytes.slice(end)));
  if (!bytes) made.append(make("span", { class: "empty" }, "empty"));
  return made;
}

const quoted = (text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
const patterns = new Map();
/** Whether observed bytes are the expected ones, placeholders filled in. */
function isLike(expected, observed) {
  if (expected === observed) return true;
  if (!patterns.has(expected)) {
    const ranges = [];
    let end = 0, source = "";
    for (const hole of expected.matchAll(HOLE)) {
      source += quoted(expected.slice(end, hole.index));
      end = hole.index + hole[0].length;
      if (hole[0] === "<time>") source += "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(?:\\.\\d{0,8}[1-9])?Z";
      else if (hole[0] === "<identity>") source += "[0-9A-Za-z]{8}";
      else { source += "(-?\\d+)"; ranges.push(hole[0].match(/-?\d+/g).map(Number)); }
    }
    patterns.set(expected, [new RegExp(`^${source}${quoted(expected.slice(end))}$`, "s"), ranges]);
  }
  const [pattern, ranges] = patterns.get(expected), found = pattern.exec(observed);
  return !!found && ranges.every(([low, high], at) => low <= +found[at + 1] && +found[at + 1] <= high);
}

/** Marks for both sides: what is left when the common beginning and the common end are taken away. */
function within(first, second, from, to) {
  let begin = 0, end = 0;
  const most = Math.min(first.length, second.length);
  while (begin < most && first[begin] === second[begin]) begin++;
  while (end < most - begin && first[first.length - 1 - end] === second[second.length - 1 - end]) end++;
  return [[from + begin, from + first.length - end], [to + begin, to + second.length - end]];
}

/** Marks for both sides, line by line where there are several lines. */
function differences(expected, observed) {
  if (isLike(expected, observed)) return [[], []];
  const lines = (text) => text.match(/[^\n]*\n|[^\n]+$/g) || [];
  const a = lines(expected), b = lines(observed);
  const common = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
    common[i][j] = isLike(a[i], b[j]) ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const marks = [[], []], only = [[], []];
  let i = 0, j = 0, left = 0, right = 0;
  const settle = () => {
    const pairs = Math.max(only[0].length, only[1].length);
    for (let at = 0; at < pairs; at++) {
      const [x, from] = only[0][at] || ["", left], [y, to] = only[1][at] || ["", right];
      const [first, second] = within(x, y, from, to);
      marks[0].push(first);
      marks[1].push(second);
    }
    only[0] = []; only[1] = [];
  };
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && isLike(a[i], b[j])) {
      settle();
      left += a[i++].length; right += b[j++].length;
    } else if (j >= b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) {
      only[0].push([a[i], left]); left += a[i++].length;
    } else {
      only[1].push([b[j], right]); right += b[j++].length;
    }
  }
  settle();
  return marks;
}

// ---------------------------------------------------------------- expected and received, side by side

const LACK = Symbol("lack");
const PARTS = [["subject", "subject"], ["headers", "header_block"], ["payload", "payload"]];
const isSame = (a, b) => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
const sorted = (value) => Array.isArray(value) ? value.map(sorted) : value && typeof value === "object"
  ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])])) : value;
const asJson = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1).replace(/\n\s*/g, " "));
const refusalText = (refused) => {
  if (!refused) return "accepted";
  const { code, err_code: number, description } = refused;
  return ["refused", number ? `${code}/${number}` : "", description || ""].filter(Boolean).join(" ");
};

/** One compared value: a name, both sides (or only one), whether it is wrong. */
function field(name, expected, observed, { isBytes = true, isWrong = null } = {}) {
  const options = { isBytes };
  const wrong = isWrong ?? (expected !== LACK && (observed === LACK || !(isBytes ? isLike(expected, observed) : expected === observed)));
  const sides = make("div", { class: "sides" });
  const both = (label, text) => sides.append(make("div", { class: "side both" }, make("small", {}, label), bytesNode(text, [], options)));
  if (expected === LACK) both("received", observed);
  else if (!wrong && expected === observed) both("expected and received", expected);
  else {
    const marks = wrong && observed !== LACK ? differences(expected, observed) : [[], []];
    sides.append(
      make("div", { class: "side expected" }, make("small", {}, "expected"), bytesNode(expected, marks[0], { ...options, hasHoles: true })),
      make("div", { class: "side observed" }, make("small", {}, wrong ? "received ✗" : "received"),
        observed === LACK ? make("pre", { class: "bytes" }, make("span", { class: "empty" }, "nothing")) : bytesNode(observed, marks[1], options)));
  }
  return [make("div", { class: `field${wrong ? " wrong" : ""}` }, make("div", { class: "name" }, name), sides), wrong];
}

/** Fields under a heading; `place` is what the judge calls it. */
function item(heading, fields, { note = "", place = "", isWrong = fields.some(([, wrong]) => wrong) } = {}) {
  return make("div", { class: `item${isWrong ? " wrong" : ""}` },
    make("h4", {}, heading, place && isWrong ? make("code", {}, place) : null, make("span", {}, isWrong && !note ? "✗ differs" : note)),
    ...fields.map(([node]) => node));
}

/** The items of a comparison; where some are wrong, those that are right are folded. */
function inOrder(items) {
  if (items.every((each) => !each.classList.contains("wrong"))) return items;
  return items.map((each) => each.classList.contains("wrong") ? each
    : make("details", { class: "right" }, make("summary", {}, `${each.querySelector("h4").firstChild.textContent}: as expected ✓`), each));
}

function messageItem(heading, place, expected, seen) {
  if (!expected) {
    const fields = [["subject", seen.subject], ["headers", seen.header_block || ""], ["payload", seen.payload || ""]].map(([name, value]) => field(name, LACK, value));
    return item(heading, fields, { place, isWrong: true, note: "✗ not expected" });
  }
  if (!seen) {
    const fields = PARTS.filter(([, key]) => key in expected);
    return item(heading, fields.map(([name, key]) => field(name, expected[key], LACK)), { place, note: "✗ did not come" });
  }
  const fields = PARTS.map(([name, key]) => field(name, expected[key] ?? LACK, seen[key] || ""));
  if ("sequence" in expected) fields.push(field("sequence", String(expected.sequence), String(seen.sequence), { isBytes: false }));
  return item(heading, fields, { place });
}

const isLikeMessage = (wanted, seen) => isLike(wanted.subject, seen.subject)
  && (!("header_block" in wanted) || isLike(wanted.header_block, seen.header_block || "")) && (!("payload" in wanted) || isLike(wanted.payload, seen.payload || ""));

function inOrderOf(expected, seen) {
  const left = [...seen], ordered = [];
  for (const wanted of expected) {
    const at = left.findIndex((each) => isLikeMessage(wanted, each));
    if (at >= 0) ordered.push(...left.splice(at, 1));
  }
  return [...ordered, ...left];
}

function messageItems(name, place, expected, seen) {
  const length = Math.max(expected.length, seen.length);
  if (!length) return [item(name, [field("messages", "none", "none", { isBytes: false })])];
  return Array.from({ length }, (_, at) => messageItem(`${name} ${at + 1} of ${length}`, `${place}[${at}]`, expected[at], seen[at]));
}

const partsOf = (observation) => ({
  decisions: (observation.decisions || []).map((number) => {
    const { refusal, config } = report.parts[number];
    return { refusal, config: config && Object.fromEntries(config.map((member) => report.parts[member])) };
  }),
  received: (observation.received || []).map((number) => report.parts[number]),
  stored: Object.fromEntries(Object.entries(observation.stored || {}).map(([stream, messages]) =>
    [stream, messages.map(([number, sequence]) => ({ ...report.parts[number], sequence }))])),
  acks: (observation.acks || []).map((number) => report.parts[number]),
  facts: observation.facts || {},
});

/** Everything that an expectation compares, next to what was seen. */
function comparison(expectation, observation) {
  const { decisions, received, stored, acks, facts } = partsOf(observation);
  const made = [];
  decisions.forEach((decision, at) => {
    const isLast = at === decisions.length - 1, wanted = isLast ? expectation.refusal : undefined, refused = decision.refusal;
    const isWrong = !wanted !== !refused || (!!wanted && Object.entries(wanted).some(([name, value]) => name in refused && value !== refused[name]));
    const fields = [field("answer", isWrong ? refusalText(wanted) : refusalText(refused), refusalText(refused), { isBytes: false, isWrong })];
    if (isLast && expectation.config && decision.config) {
      for (const [name, value] of Object.entries(expectation.config)) {
        const seen = decision.config[name];
        const text = (each) => (each === undefined || each === null ? "(absent)" : asJson(sorted(each)));
        fields.push(field(name, text(value), text(seen), { isBytes: false, isWrong: !isSame(value ?? null, seen ?? null) }));
      }
    }
    made.push(item(decisions.length > 1 ? `Decision ${at + 1} of ${decisions.length}` : "Decision", fields));
  });
  if (expectation.refusal && !decisions.length) made.push(item("Decision", [field("answer", refusalText(expectation.refusal), LACK, { isBytes: false })]));
  if (expectation.acks) {
    const text = (ack) => (ack === undefined ? LACK : ack === null ? "no answer" : asJson(sorted(ack)));
    const count = Math.max(expectation.acks.length, acks.length);
    const fields = Array.from({ length: count }, (_, at) => {
      const wanted = expectation.acks[at], seen = acks[at];
      const isWrong = !wanted || !seen ? wanted !== seen : Object.entries(wanted).some(([name, value]) => !isSame(value, seen[name]));
      return field(`message ${at + 1}`, wanted === undefined ? "nothing" : text(wanted), text(seen), { isBytes: false, isWrong });
    });
    if (count) made.push(item("Answers to publishers", fields));
  }
  if (expectation.received) made.push(...messageItems("Received", "received", expectation.received, received));
  for (const [stream, expected] of Object.entries(expectation.stored || {})) {
    if (!(stream in stored) && !Object.keys(stored).length && expected.length === 0) continue;
    const seen = stored[stream] || [];
    made.push(...messageItems(`Stored in ${stream}`, `stored.${stream}`, expected, (expectation.any_order || []).includes(stream) ? inOrderOf(expected, seen) : seen));
  }
  if (expectation.facts) {
    const fields = Object.entries(expectation.facts).map(([name, value]) =>
      field(name, asJson(sorted(value)), name in facts ? asJson(sorted(facts[name])) : LACK, { isBytes: false }));
    if (fields.length) made.push(item("Facts", fields));
  }
  return inOrder(made);
}

/** What was seen and no expectation names. */
function alsoSeen(expectation, observation) {
  const { decisions, received, stored, acks, facts } = partsOf(observation);
  const made = [];
  const alone = (name, value) => field(name, LACK, asJson(sorted(value)), { isBytes: false });
  const config = decisions.at(-1)?.config;
  if (config) {
    const others = Object.entries(config).filter(([name]) => !expectation?.config || !(name in expectation.config));
    if (others.length) made.push(item("Returned configuration", others.map(([name, value]) => alone(name, value))));
  }
  if (!expectation?.acks && acks.length) made.push(item("Answers to publishers", acks.map((ack, at) => alone(`message ${at + 1}`, ack ?? "no answer"))));
  const list = (name, messages) => messages.forEach((each, at) => made.push(item(`${name} ${at + 1}`,
    [field("subject", LACK, each.subject), field("headers", LACK, each.header_block || ""), field("payload", LACK, each.payload || "")])));
  if (!expectation?.received) list("Received", received);
  for (const [stream, messages] of Object.entries(stored)) if (!expectation?.stored || !(stream in expectation.stored)) list(`Stored in ${stream}`, messages);
  const others = Object.entries(facts).filter(([name]) => !expectation?.facts || !(name in expectation.facts));
  if (others.length) made.push(item("Facts", others.map(([name, value]) => alone(name, value))));
  return made;
}

// ---------------------------------------------------------------- the view of one cell

const jsonNode = (value) => make("pre", { class: "bytes" }, JSON.stringify(value, null, 1).replace(/\n\s*/g, " "));

const STEP_NAMES = { settle: "wait for", drop: "delete stream", delete: "delete message" };

function stepNode([name, value]) {
  const content = name !== "publish" ? [jsonNode(value.config ?? value)]
    : PARTS.filter(([, key]) => key !== "header_block" || value.message[key])
      .map(([part, key]) => make("div", { class: "part" }, make("span", {}, part), bytesNode(value.message[key])));
  return make("div", { class: "step" }, make("span", { class: "name" }, STEP_NAMES[name] ?? name), make("div", {}, ...content));
}

function sentSection(each) {
  const steps = [];
  if (each.scenario) steps.push(make("div", { class: "step" }, make("span", { class: "name" }, "scenario"), make("code", {}, each.scenario)));
  for (const stream of each.streams || []) steps.push(stepNode(["stream", stream]));
  for (const step of each.steps || []) steps.push(stepNode(step));
  if (each.listen) steps.push(make("div", { class: "step" }, make("span", { class: "name" }, "listening"), make("div", {}, each.listen.map((subject) => bytesNode(subject)))));
  return make("section", { class: "sent" }, make("h3", {}, "What was sent"), make("div", {}, ...steps));
}

/** What is expected of most versions, next to what this one shows. */
function usualSection(expectation, observation) {
  const section = make("section", { class: "usual known" }, make("h3", {}, "What other versions show, and this one"), ...comparison(expectation, observation));
  const names = { both: "the same", expected: "others", observed: "this one" };
  for (const [side, name] of Object.entries(names)) for (const label of section.querySelectorAll(`.side.${side} > small`)) label.textContent = name;
  for (const label of section.querySelectorAll(".right > summary")) label.textContent = label.textContent.replace("as expected ✓", "the same");
  for (const label of section.querySelectorAll(".wrong > h4 > span")) label.textContent = label.textContent.replace("✗", "≠");
  return section;
}

/** A known divergence's id, linked to its explanation, where the page knows it. */
const divergenceNode = (id) => report.divergences ? make("a", { href: report.divergences }, id)
  : make("span", { title: "explained in docs/known-divergences.md" }, id);

/** A text with its addresses as links: the reason of a library may name an issue. */
const linked = (text) => text.split(/(https:\/\/[\w./#?=&%:~-]+)/).map((part, at) => at % 2 ? make("a", { href: part }, part) : part);

function verdictNode(row, column) {
  const cell = cells[row][column], outcome = outcomeOf(row, column);
  const kd = cell?.[DIVERGENCES] || [];
  const why = outcome?.key === "divergence" ? [] : linked(reasonOf(cell));
  kd.forEach((id, at) => why.push(at ? ", " : "", divergenceNode(id)));
  if (outcome?.key === "divergence") why.push(`: ${outcome.meaning}`);
  if (!outcome) why.push("the history does not have this case here");
  const isPass = outcome?.key === "pass";
  return make("div", { class: `verdict ${keyOf(row, column)}` }, make("span", { "aria-hidden": "true" }, outcome?.sign ?? report.noRecord),
    make("p", {}, make("b", {}, `${subjects[column].label}: ${wordOf(row, column)}`), make("br"), ...(isPass ? [outcome.meaning] : why)));
}

function againSection(row, column) {
  const command = subjects[column].command.replaceAll(report.id, cases[row].id);
  const input = make("textarea", { readonly: true, rows: 3, "aria-label": "Command", spellcheck: "false" }, command);
  const button = make("button", { type: "button", class: "tool copy", onclick: () => copy(command, button, input) }, "Copy");
  return make("section", { class: "again-section" }, make("h3", {}, "Play it again"), make("div", { class: "again" }, input, button));
}

async function copy(text, button, input) {
  const label = button.textContent;
  let isCopied = false;
  try {
    await navigator.clipboard.writeText(text);
    isCopied = true;
  } catch {
    input.focus();
    input.select();
    isCopied = document.execCommand("copy");
  }
  button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
  byId("said").textContent = isCopied ? "Copied" : "The text is selected: press Ctrl+C";
  setTimeout(() => { button.textContent = label; }, 1600);
}

function showPanel(row, column) {
  const each = cases[row], cell = cells[row][column], clause = clauses[each.clause];
  const expectation = cell && cell[EXPECTATION] >= 0 ? report.expectations[cell[EXPECTATION]] : null;
  const observation = cell && cell[OBSERVATION] >= 0 ? report.observations[cell[OBSERVATION]] : null;
  const tools = make("div", { class: "tools" }, make("a", { class: "mono", href: addressOf({ case: each.id }), title: "Permanent link to this case" }, each.id),
    make("button", { type: "button", class: "tool close", "aria-label": "Close", title: "Close (Escape)", onclick: close }, "✕"));
  const facts = make("div", { class: "facts" },
    clause.link ? make("a", { href: clause.link, target: "_blank", rel: "noopener" }, clause.name) : make("span", {}, clause.name),
    make("span", {}, each.level), cell && cell[MILLISECONDS] >= 0 ? make("span", {}, `${cell[MILLISECONDS]} ms`) : null,
    each.file ? make("span", { class: "mono" }, each.file) : null,
    each.kd ? make("span", {}, "may show ", ...each.kd.flatMap((id, at) => [at ? ", " : "", divergenceNode(id)])) : null);
  const inside = make("div", { class: "inside" },
    make("div", {}, make("h2", { id: "panel-title", tabindex: -1 }, each.title), facts),
    verdictNode(row, column),
    each.quote ? make("blockquote", {}, each.quote) : null);
  if (observation && expectation) {
    // Of a known difference, what is different is what people come for.
    if (each.usual !== cell[EXPECTATION]) inside.append(usualSection(report.expectations[each.usual], observation));
    const compared = comparison(expectation, observation);
    const isExplained = keyOf(row, column) === "divergence";
    inside.append(make("section", { class: `compared${isExplained ? " known" : ""}` }, make("h3", {}, "Expected and received"), ...compared));
    const shown = report.texts[cell[MISMATCHES] ?? 0];
    if (shown?.length) {
      inside.append(make("details", { class: "mismatches" }, make("summary", {}, `In the judge's words (${shown.length})`),
        make("ul", { class: "shown" }, ...shown.map(([where, expected, observed]) => make("li", {}, make("code", {}, where), ": expected ",
          make("code", {}, expected), ", observed ", make("code", {}, observed))))));
    }
  }
  inside.append(sentSection(each));
  if (observation) {
    const others = alsoSeen(expectation, observation);
    if (others.length) inside.append(make("details", {}, make("summary", {}, "What else was seen"), ...others));
  }
  inside.append(againSection(row, column));
  panel.replaceChildren(tools, inside);
}

// ---------------------------------------------------------------- the top of the page

const dateOf = (time) => String(time).replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d)?(\+00:00|Z)$/, "$1 $2 UTC");

function buildTop() {
  const { run } = report, plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  const shown = [plural(cases.length, "case"), report.choice, `${plural(subjects.length, "subject")} of test`, run.suite && `suite ${run.suite}`,
    run.time && dateOf(run.time),
    run.catalogue && `catalogue ${run.catalogue.slice(0, 12)}`];
  byId("about").textContent = shown.filter(Boolean).join(" · ");
  const [key, sign, text] = report.failures ? ["fail", "✗", plural(report.failures, "failure")] : report.passed ? ["pass", "✓", "Passed"] : ["errored", "!", "Not complete"];
  byId("result").append(make("span", { class: `sign ${key}`, "aria-hidden": "true" }, sign), text);
  for (const objection of report.objections) {
    byId("objections").append(make("div", { class: "objection", role: "alert" }, make("strong", {}, "This report is partial"), objection));
  }
  outcomes.forEach(({ key, word, sign }) => {
    const number = cases.reduce((sum, _, row) => sum + subjects.filter((__, column) => keyOf(row, column) === key).length, 0);
    if (!number) return;
    byId("outcomes").append(make("button", { type: "button", class: "chip", "data-outcome": key, "aria-pressed": "false", onclick: () => toggle(state.outcome, key) },
      make("span", { class: `sign ${key}`, "aria-hidden": "true" }, sign), word, make("b", {}, String(number))));
  });
  const kinds = [...new Set(subjects.map(({ kind }) => kind))];
  if (kinds.length > 1) for (const kind of kinds) {
    byId("kinds").append(make("button", { type: "button", class: "chip", "data-kind": kind, "aria-pressed": "true", onclick: () => toggle(state.hide, kind) }, make("i", { "aria-hidden": "true" }), kind));
  }
  byId("kinds").hidden = kinds.length < 2;
  const options = (select, all, values) => byId(select).append(make("option", { value: "" }, all), ...values.map((value) => make("option", { value }, value)));
  options("level", "all", ["must", "should", "observed"].filter((level) => cases.some((each) => each.level === level)));
  options("document", "all", [...new Set(clauses.map(({ document }) => document))]);
  byId("legend").append(...outcomes.map(({ key, word, sign, meaning }) => make("div", {}, make("dt", { class: `sign ${key}` }, sign), make("dd", {}, `${word}: ${meaning}`))));
}

function toggle(set, value) {
  set[set.has(value) ? "delete" : "add"](value);
  // The last kind of columns stays.
  if (set === state.hide && !shownColumns().length) set.delete(value);
  apply();
  writeAddress();
}

let builtFor = null;
/** Bring everything in line with the state. */
function apply() {
  const columns = shownColumns().join();
  if (columns !== builtFor) { buildMatrix(); builtFor = columns; }
  if (byId("text").value !== state.q) byId("text").value = state.q;
  byId("level").value = state.level;
  byId("document").value = state.doc;
  byId("differ").checked = state.differ;
  for (const chip of document.querySelectorAll("[data-outcome]")) chip.setAttribute("aria-pressed", state.outcome.has(chip.dataset.outcome));
  for (const chip of document.querySelectorAll("[data-kind]")) chip.setAttribute("aria-pressed", !state.hide.has(chip.dataset.kind));
  filter();
}

function follow() {
  readAddress();
  if (!shownColumns().length) state.hide.clear();
  apply();
  const row = cases.findIndex(({ id }) => id === state.case);
  if (row < 0) { panel.hidden = true; document.body.classList.remove("opened"); layOut(); if (state.cases.length || state.q) byId("cases").scrollIntoView(); return; }
  const named = subjects.findIndex(({ label }) => label === state.subject);
  open(row, named < 0 ? tellingColumn(row) : named);
  (cellAt(row, named) || rows[row]).scrollIntoView({ block: "center" });
}

// ---------------------------------------------------------------- what people do

matrix.addEventListener("click", (event) => {
  const row = event.target.closest(".row");
  if (!row || String(getSelection())) return;
  const cell = event.target.closest(".cell");
  const column = cell ? +cell.dataset.column : event.target.closest(".case") ? tellingColumn(+row.dataset.row) : null;
  if (column === null) return;
  open(+row.dataset.row, column, { isNew: true });
  if (!isOverlay()) cellAt(+row.dataset.row, column)?.focus({ preventScroll: true });
});
matrix.addEventListener("keydown", (event) => {
  const cell = event.target.closest(".cell");
  if (!cell || event.altKey || event.ctrlKey || event.metaKey) return;
  if (/^(Arrow|Home$|End$)/.test(event.key)) move(cell, event.key);
  else if (event.key === "Enter" || event.key === " ") open(+cell.parentElement.dataset.row, +cell.dataset.column, { isNew: true, isFocused: true });
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !panel.hidden) { close(); event.preventDefault(); }
  else if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) { byId("text").focus(); event.preventDefault(); }
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("text").addEventListener("input", () => { state.q = byId("text").value; filter(); writeAddress(); });
byId("level").addEventListener("change", () => { state.level = byId("level").value; filter(); writeAddress(); });
byId("document").addEventListener("change", () => { state.doc = byId("document").value; filter(); writeAddress(); });
byId("differ").addEventListener("change", () => { state.differ = byId("differ").checked; filter(); writeAddress(); });
byId("clear").addEventListener("click", () => {
  Object.assign(state, { q: "", outcome: new Set(), level: "", doc: "", differ: false, hide: new Set(), cases: [] });
  apply();
  writeAddress();
  byId("text").focus();
});
addEventListener("popstate", follow);
new ResizeObserver(layOut).observe(matrix.parentElement);
buildTop();
buildSite(report.site);
follow();
