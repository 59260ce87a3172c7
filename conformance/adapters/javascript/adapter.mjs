// An adapter of the conformance protocol, version 1, with a transform engine of its own: the functions of nats-server
// 2.15 as ADR-30 describes them. It answers `bare_transform`, so the rules of republish and sources are not its task.
import { createInterface } from "node:readline";

const encode = (bytes) => {
  const text = bytes.toString("utf8");
  return Buffer.from(text).equals(bytes) ? text : { base64: bytes.toString("base64") };
};
const decode = (value) => (typeof value === "string" ? Buffer.from(value) : Buffer.from(value.base64, "base64"));
// Tokens are latin1 strings: one character for each byte, as servers count them.
const tokensOf = (value) => decode(value).toString("latin1").split(".");

class Refused extends Error {}
class Unsupported extends Error {}

const isSubject = (tokens) =>
  tokens.every((token, at) => token !== "" && !/[ \t\n\r\f]/.test(token) && (token !== ">" || at === tokens.length - 1));

/** The tokens for `*` and for `>`, or null if the subject does not match. */
function matched(source, subject) {
  const stars = [];
  for (const [at, token] of source.entries()) {
    if (at >= subject.length) return null;
    if (token === ">") return { stars, rest: subject.slice(at) };
    if (token === "*") stars.push(subject[at]);
    else if (token !== subject[at]) return null;
  }
  return source.length === subject.length ? { stars, rest: [] } : null;
}

function integer(text, most = 2 ** 31 - 1) {
  if (!/^[+-]?\d+$/.test(text)) throw new Refused();
  const value = Number(text);
  if (value > most) throw new Refused();
  return value;
}

/** FNV-1a with 32 bits, over the bytes of the tokens without separators. */
function hash(tokens) {
  let value = 0x811c9dc5;
  for (const byte of Buffer.from(tokens.join(""), "latin1")) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value;
}

const pieces = (token, starts) => starts.map((start, at) => token.slice(start, starts[at + 1]));

const cut = {
  splitfromleft: (token, size) => (size <= 0 || size >= token.length ? [token] : pieces(token, [0, size])),
  splitfromright: (token, size) => (size <= 0 || size >= token.length ? [token] : pieces(token, [0, token.length - size])),
  slicefromleft(token, size) {
    if (size <= 0 || size >= token.length) return [token];
    return pieces(token, Array.from({ length: Math.ceil(token.length / size) }, (_, n) => n * size));
  },
  slicefromright(token, size) {
    if (size <= 0 || size >= token.length) return [token];
    const first = token.length % size;
    const starts = Array.from({ length: Math.floor(token.length / size) }, (_, n) => first + n * size);
    return pieces(token, first ? [0, ...starts] : starts);
  },
  left: (token, size) => [size <= 0 ? token : token.slice(0, size)],
  right: (token, size) => [size <= 0 || size >= token.length ? token : token.slice(-size)],
};

/** A function from a match to tokens, for one token of the destination. */
function compiled(token, source) {
  const wildcards = source.filter((each) => each === "*").length;
  const index = (text) => {
    const value = integer(text);
    if (value > wildcards) throw new Refused();
    if (value < 1) throw new Unsupported("an index of 0 or below");
    return value - 1;
  };
  const legacy = /^\$(\d+)$/.exec(token);
  if (legacy) {
    const at = index(legacy[1]);
    return ({ stars }) => [stars[at]];
  }
  const call = /\{\{\s*([A-Za-z]+)\s*\(([^)]*)\)\s*\}\}/.exec(token);
  if (!token.startsWith("{{") || !token.endsWith("}}") || token.length < 4) return () => [token];
  if (!call) throw new Refused();
  const name = call[1].toLowerCase();
  const given = call[2].split(",").map((argument) => argument.trim());
  const take = (count) => {
    if (given.length !== count) throw new Refused();
    return given;
  };
  if (name === "wildcard") {
    const at = index(take(1)[0]);
    return ({ stars }) => [stars[at]];
  }
  if (name === "partition") {
    const count = integer(given[0]);
    if (count < 1) throw new Unsupported("a partition count of 0 or below");
    const chosen = given.slice(1).map(index);
    return ({ stars, subject }) =>
      [String(hash(chosen.length ? chosen.map((at) => stars[at]) : [subject.join(".")]) % count)];
  }
  if (name === "split") {
    const [position, delimiter] = [index(given[0]), call[2].slice(call[2].indexOf(",") + 1).trim()];
    if (given.length !== 2 || /[ .]/.test(delimiter)) throw new Refused();
    return ({ stars }) => stars[position].split(delimiter).filter((piece) => piece !== "");
  }
  if (name in cut) {
    const [position, size] = take(2);
    const [at, bytes] = [index(position), integer(size)];
    return ({ stars }) => cut[name](stars[at], bytes);
  }
  if (name === "random") throw new Unsupported("random");
  throw new Refused();
}

function transform({ src, dest, subjects }) {
  const [source, destination] = [tokensOf(src === "" ? ">" : src), tokensOf(dest)];
  if (dest === "") return { results: subjects.map(() => null) };
  if (!isSubject(source) || !isSubject(destination) || destination.includes("*")) throw new Refused();
  if ((source.at(-1) === ">") !== (destination.at(-1) === ">")) throw new Refused();
  const parts = destination.map((token) => (token === ">" ? ({ rest }) => rest : compiled(token, source)));
  return {
    results: subjects.map((each) => {
      const subject = tokensOf(each);
      const match = matched(source, subject);
      if (match === null) return null;
      return encode(Buffer.from(parts.flatMap((part) => part({ ...match, subject })).join("."), "latin1"));
    }),
  };
}

function answer(request) {
  if (request.op === "hello")
    return { protocol: 1, name: "javascript", version: "1", dialects: ["2.15"], capabilities: ["bare_transform"] };
  if (request.op === "bye") return {};
  try {
    return transform(request);
  } catch (error) {
    if (error instanceof Refused) return { refused: {} };
    return error instanceof Unsupported ? { unsupported: error.message } : { error: String(error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  process.stdout.write(`${JSON.stringify({ id: request.id, ...answer(request) })}\n`);
  if (request.op === "bye") break;
}
