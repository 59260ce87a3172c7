//! Cuts one delivery of a consumer off the front of a read, and a reply subject into its tokens.

use memchr::memchr;

const ACK: &[u8] = b"$JS.ACK.";
/// Bytes; servers accept no larger messages.
const LONGEST: u64 = 256 << 20;

/// A delivery. Its parts are of the read.
pub struct Delivery<'a> {
    pub subject: &'a [u8],
    pub reply: &'a [u8],
    pub block: &'a [u8],
    pub payload: &'a [u8],
    /// Where the read continues behind it.
    pub end: usize,
}

impl<'a> Delivery<'a> {
    /// The delivery at a position; None where it is not a whole one to this subscription, or its line has other fields.
    #[inline]
    pub fn cut(data: &'a [u8], at: usize, sid: &[u8]) -> Option<Self> {
        let rest = data.get(at..)?;
        let (has_block, begin) = if rest.starts_with(b"MSG ") {
            (false, 4)
        } else if rest.starts_with(b"HMSG ") {
            (true, 5)
        } else {
            return None;
        };
        let line_end = begin + memchr(b'\r', &rest[begin..])?;
        if rest.get(line_end + 1) != Some(&b'\n') {
            return None;
        }
        let mut fields = &rest[begin..line_end];
        let subject = until(&mut fields, b' ')?;
        if until(&mut fields, b' ')? != sid {
            return None;
        }
        let reply = until(&mut fields, b' ')?;
        let opened = if has_block { number(until(&mut fields, b' ')?)? } else { 0 };
        let total = number(fields)?;
        if opened > total || total > LONGEST {
            return None;
        }
        let start = line_end + 2;
        let (body, stop) = (start + opened as usize, start + total as usize);
        if stop + 2 > rest.len() {
            return None;
        }
        Some(Delivery { subject, reply, block: &rest[start..body], payload: &rest[body..stop], end: at + stop + 2 })
    }
}

/// What a first delivery's reply subject says, behind a front that all deliveries of the consumer share.
pub struct Ack<'a> {
    pub stream_text: &'a [u8],
    pub stream: u64,
    pub consumer: u64,
    /// Ten digits; with the nanoseconds, when the stream stored the message.
    pub second: &'a [u8],
    /// Nine digits.
    pub nanoseconds: &'a [u8],
}

impl<'a> Ack<'a> {
    /// The front: `$JS.ACK.` and what follows, the delivery count included; None where that is not 1.
    pub fn front(reply: &[u8]) -> Option<&[u8]> {
        let dots = memchr::memchr_iter(b'.', reply).count();
        if dots < 8 || !reply.starts_with(ACK) {
            return None;
        }
        // Servers from 2.11 name domain and account first (ADR-15), but for `_` in both.
        let tokens = if dots == 8 { 4 } else { 6 };
        let mut rest = reply;
        for _ in 0..tokens {
            until(&mut rest, b'.')?;
        }
        rest.starts_with(b"1.").then(|| &reply[..reply.len() - rest.len() + 2])
    }

    /// The rest of a reply subject; None where it is not as servers write it.
    #[inline]
    pub fn behind(front: &[u8], reply: &'a [u8]) -> Option<Self> {
        let mut rest = reply.strip_prefix(front)?;
        let stream_text = until(&mut rest, b'.')?;
        let consumer = number(until(&mut rest, b'.')?)?;
        let time = until(&mut rest, b'.')?;
        // With an `@`, a server has left a part of the subject there.
        if time.len() != 19 || !time.iter().all(u8::is_ascii_digit) || memchr(b'@', rest).is_some() {
            return None;
        }
        let (second, nanoseconds) = time.split_at(10);
        Some(Ack { stream_text, stream: number(stream_text)?, consumer, second, nanoseconds })
    }
}

/// What comes before a separator, and moves behind it.
#[inline]
fn until<'a>(rest: &mut &'a [u8], separator: u8) -> Option<&'a [u8]> {
    let length = memchr(separator, rest)?;
    let found = &rest[..length];
    *rest = &rest[length + 1..];
    Some(found)
}

/// A decimal number as servers write it: no sign, no zero in front.
#[inline]
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 || (text[0] == b'0' && text.len() > 1) {
        return None;
    }
    let mut value = 0;
    for &digit in text {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}
