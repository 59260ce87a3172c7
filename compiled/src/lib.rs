//! The hot loop of a republish rule in one call: from a read of the socket to the operations that are written.
//!
//! It does what `BatchParser`, `OrderedReader` and `RepublishEncoder._run_plain` do to the common case, byte for byte
//! (`tests/compiled` holds them against each other), and stops before the first thing that is not common: another line
//! of the protocol, another subscription, a redelivery, a gap, a subject with spaces. Python handles that, and calls
//! again. Entries are the encoder's; of subjects that have none, it keeps the last sequences (`sequences`).

mod delivery;
mod sequences;

use delivery::{Ack, Delivery};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use sequences::SubjectSequences;

/// Changes with the arguments and results below, as `_INTERFACE` in `bridge/kinds/republish/compiled.py`.
const INTERFACE: u32 = 2;
/// As `_SPREAD` of the encoder.
const SPREAD: u64 = 0x9E37_79B1;
const TRACED: &[u8] = b"\nNats-Trace-Dest:";
const START: &[u8] = b"NATS/1.0\r\n";
const SEQUENCE: &[u8] = b"\r\nNats-Sequence: ";
const STAMP: &[u8] = b"\r\nNats-Time-Stamp: ";
const LAST: &[u8] = b"Z\r\nNats-Last-Sequence: ";

/// What one call took: see `Taken` in `bridge/kinds/republish/compiled.py`.
type Taken<'py> =
    (usize, usize, usize, usize, usize, u64, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The loop of one rule.
///
/// Args: the stream's name; the encoder's entries, lists of destination (or None), last sequence and reason; the last
/// sequences of subjects that have no entry; whether entries have no room; what makes the entry of a subject that has
/// none, from the subject and the sequence of its message; what derives one that is not kept, from the subject and its
/// last sequence; of so many messages without an entry, one enters where there is no room; what counts a message that
/// is not republished, by its reason.
#[pyclass]
struct HotLoop {
    stream: Vec<u8>,
    entries: Py<PyDict>,
    sequences: Py<SubjectSequences>,
    is_full: Py<PyAny>,
    enter: Py<PyAny>,
    derive: Py<PyAny>,
    enters: u64,
    dropped: Py<PyAny>,
    second: Vec<u8>,
    stamp: Vec<u8>,
    out: Vec<u8>,
}

#[pymethods]
impl HotLoop {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        stream: &[u8],
        entries: Py<PyDict>,
        sequences: Py<SubjectSequences>,
        is_full: Py<PyAny>,
        enter: Py<PyAny>,
        derive: Py<PyAny>,
        enters: u64,
        dropped: Py<PyAny>,
    ) -> Self {
        let stream = [b"Nats-Stream: ", stream, b"\r\nNats-Subject: "].concat();
        let (second, stamp, out) = (Vec::new(), Vec::new(), Vec::new());
        HotLoop { stream, entries, sequences, is_full, enter, derive, enters, dropped, second, stamp, out }
    }

    /// Take whole deliveries from a position of a read on; None where nothing was taken.
    ///
    /// Args: the read; the position; the subscription's sid; the next consumer sequence; the last stream sequence;
    /// whether a filter leaves out sequences; the most bytes of a message, headers included.
    #[allow(clippy::too_many_arguments)]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        data: &[u8],
        position: usize,
        sid: &[u8],
        mut next: u64,
        mut handled: u64,
        filtered: bool,
        max_payload: usize,
    ) -> PyResult<Option<Taken<'py>>> {
        let Some(first) = Delivery::cut(data, position, sid) else { return Ok(None) };
        let Some(front) = Ack::front(first.reply) else { return Ok(None) };
        let (first_reply, mut last_reply) = (first.reply, first.reply);
        let entries = self.entries.clone_ref(py).into_bound(py);
        let (mut at, mut received, mut republished, mut too_large, mut bytes_in) = (position, 0, 0, 0, 0);
        let mut full = self.has_no_room(py)?;
        self.out.clear();
        let mut delivery = Some(first);
        while let Some(message) = delivery {
            let Some(ack) = Ack::behind(front, message.reply) else { break };
            let follows = if filtered { ack.stream > handled } else { ack.stream == handled + 1 };
            // Python takes out the lines that would have the server trace the message.
            let traced = memchr::memmem::find(message.block, TRACED).is_some();
            if ack.consumer != next || !follows || traced {
                break;
            }
            (at, last_reply) = (message.end, message.reply);
            (next, handled, received) = (next + 1, ack.stream, received + 1);
            bytes_in += message.block.len() + message.payload.len();
            let subject = PyBytes::new(py, message.subject);
            let entry = match entries.get_item(&subject)? {
                Some(entry) => entry,
                None if full && !enters(ack.stream, self.enters) => {
                    let last = self.sequences.borrow_mut(py).replace(message.subject, ack.stream);
                    let last = PyBytes::new(py, last.unwrap_or(0).to_string().as_bytes());
                    self.derive.bind(py).call1((&subject, last))?
                }
                None => {
                    let entry = self.enter.bind(py).call1((&subject, PyBytes::new(py, ack.stream_text)))?;
                    full = self.has_no_room(py)?;
                    entry
                }
            };
            let entry = entry.downcast::<PyList>()?;
            let last = entry.get_item(1)?;
            entry.set_item(1, PyBytes::new(py, ack.stream_text))?;
            let destination = entry.get_item(0)?;
            if destination.is_none() {
                self.dropped.bind(py).call1((entry.get_item(2)?,))?;
            } else {
                let (destination, last) = (destination.downcast::<PyBytes>()?, last.downcast::<PyBytes>()?);
                if self.write(&message, &ack, destination.as_bytes(), last.as_bytes(), max_payload) {
                    republished += 1;
                } else {
                    too_large += 1;
                }
            }
            delivery = Delivery::cut(data, at, sid);
        }
        if received == 0 {
            return Ok(None);
        }
        let operations = PyBytes::new(py, &self.out);
        let (first, last) = (PyBytes::new(py, first_reply), PyBytes::new(py, last_reply));
        Ok(Some((at, received, republished, too_large, bytes_in, handled, operations, first, last)))
    }
}

impl HotLoop {
    fn has_no_room(&self, py: Python<'_>) -> PyResult<bool> {
        self.is_full.bind(py).call0()?.extract()
    }

    /// Write one operation, unless it is too large.
    fn write(&mut self, message: &Delivery, ack: &Ack, destination: &[u8], last: &[u8], max_payload: usize) -> bool {
        if ack.second != self.second {
            self.second = ack.second.to_vec();
            self.stamp = stamp_of(ack.second);
        }
        let opened = match message.block.len() {
            0 => START,
            length => &message.block[..length.saturating_sub(2)],
        };
        let zeros = ack.nanoseconds.iter().rev().take_while(|&&digit| digit == b'0').count();
        let fraction = &ack.nanoseconds[..ack.nanoseconds.len() - zeros];
        let dot: &[u8] = if fraction.is_empty() { b"" } else { b"." };
        let head = [
            opened,
            &self.stream,
            message.subject,
            SEQUENCE,
            ack.stream_text,
            &self.stamp,
            dot,
            fraction,
            LAST,
            last,
            b"\r\n\r\n",
        ];
        let size = head.iter().map(|part| part.len()).sum();
        let total = size + message.payload.len();
        if total > max_payload {
            return false;
        }
        let out = &mut self.out;
        out.reserve(destination.len() + total + 64);
        out.extend_from_slice(b"HPUB ");
        out.extend_from_slice(destination);
        put_number(out, size);
        put_number(out, total);
        out.extend_from_slice(b"\r\n");
        for part in head {
            out.extend_from_slice(part);
        }
        out.extend_from_slice(message.payload);
        out.extend_from_slice(b"\r\n");
        true
    }
}

/// Whether the subject of a message that has no entry gets one, as `_enters` of the encoder decides it.
#[inline]
fn enters(sequence: u64, one_of: u64) -> bool {
    (sequence.wrapping_mul(SPREAD) >> 16 & 0xffff) % one_of == 0
}

/// Append a space and a number.
fn put_number(out: &mut Vec<u8>, mut value: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.push(b' ');
    out.extend_from_slice(&digits[at..]);
}

/// The time stamp's line up to the second, which is ten digits, in seconds since 1970.
fn stamp_of(second: &[u8]) -> Vec<u8> {
    let seconds = second.iter().fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0'));
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The date of a day, in years that begin in March, 400 of which have 146,097 days (Howard Hinnant, civil_from_days).
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let mut stamp = STAMP.to_vec();
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    stamp.extend_from_slice(
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}").as_bytes(),
    );
    stamp
}

#[pymodule]
fn nats_bridge_compiled(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<SubjectSequences>()?;
    module.add_class::<HotLoop>()
}
