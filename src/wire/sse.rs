//! Server-sent events: an incremental decoder over any split of the bytes, and an encoder.
//!
//! Follows the WHATWG HTML standard, section "Server-sent events" (CR, LF and CRLF lines, comments,
//! multi-line data, a leading byte order mark), except that an event cut off by the end of the
//! stream is still delivered: inference servers differ in whether they close the last one.

/// The largest event the decoder holds unless told otherwise, bytes: far above one chunk with
/// log-probabilities, and small enough that a broken upstream cannot fill the memory.
pub const DEFAULT_MAX_EVENT_BYTES: usize = 8 << 20;

/// Why decoding stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// One event is larger than the decoder may hold.
    #[error("an event is larger than {max_bytes} bytes")]
    EventTooLarge {
        /// The bound.
        max_bytes: usize,
    },
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field; empty when absent.
    pub name: &'a str,
    /// The `data` lines joined by line feeds; invalid UTF-8 is replaced.
    pub data: &'a str,
    /// Offset in the pushed chunk just after the blank line that ended the event.
    pub end: usize,
}

/// An incremental decoder: push chunks in order, then [`SseDecoder::finish`].
#[derive(Debug)]
pub struct SseDecoder {
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    at_start: bool,
    after_cr: bool,
    max_bytes: usize,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_EVENT_BYTES)
    }
}

impl SseDecoder {
    /// Makes a decoder that holds at most `max_bytes` of one event.
    #[must_use]
    pub const fn new(max_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            name: String::new(),
            data: String::new(),
            has_data: false,
            at_start: true,
            after_cr: false,
            max_bytes,
        }
    }

    /// Decodes the next chunk and calls `on_event` for each event that it completes.
    ///
    /// # Errors
    /// [`SseError::EventTooLarge`]; the decoder is of no use afterwards.
    pub fn push(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) -> Result<(), SseError> {
        let mut at = self.line_end_in(chunk);
        self.after_cr &= chunk.is_empty();
        while let Some(length) = chunk[at..].iter().position(|b| matches!(b, b'\n' | b'\r')) {
            let line_end = at + length;
            let mut next = line_end + 1;
            if chunk[line_end] == b'\r' {
                match chunk.get(next) {
                    Some(b'\n') => next += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.keep_line(&chunk[at..line_end])?;
            self.end_line(next, &mut on_event);
            at = next;
        }
        self.keep_line(&chunk[at..])
    }

    /// Ends the stream, delivering an event that no blank line closed; its `end` is 0.
    pub fn finish(mut self, mut on_event: impl FnMut(Event<'_>)) {
        if !self.line.is_empty() {
            self.end_line(0, &mut on_event);
        }
        self.deliver(0, &mut on_event);
    }

    /// Returns how many first bytes of `chunk`, the next one, still end the last line of the previous
    /// one: 1 for the line feed of a CRLF that was split, else 0.
    #[must_use]
    pub fn line_end_in(&self, chunk: &[u8]) -> usize {
        usize::from(self.after_cr && chunk.first() == Some(&b'\n'))
    }

    /// Returns whether bytes of an incomplete event are held.
    #[must_use]
    pub fn is_mid_event(&self) -> bool {
        !self.line.is_empty() || self.has_data || !self.name.is_empty()
    }

    fn keep_line(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + self.data.len() + bytes.len() > self.max_bytes {
            return Err(SseError::EventTooLarge { max_bytes: self.max_bytes });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, end: usize, on_event: &mut impl FnMut(Event<'_>)) {
        if std::mem::take(&mut self.at_start) && self.line.starts_with(b"\xEF\xBB\xBF") {
            self.line.drain(..3);
        }
        if self.line.is_empty() {
            self.deliver(end, on_event);
            return;
        }
        let (field, value) = match self.line.iter().position(|b| *b == b':') {
            Some(colon) => {
                let value = &self.line[colon + 1..];
                (&self.line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (&self.line[..], &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(&String::from_utf8_lossy(value));
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            _ => {}
        }
        self.line.clear();
    }

    fn deliver(&mut self, end: usize, on_event: &mut impl FnMut(Event<'_>)) {
        if std::mem::take(&mut self.has_data) {
            on_event(Event { name: &self.name, data: &self.data, end });
        }
        self.name.clear();
        self.data.clear();
    }
}

/// Appends one event to `out`; an empty `name` writes no `event` line.
pub fn encode(name: &str, data: &str, out: &mut Vec<u8>) {
    if !name.is_empty() {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    for line in data.split('\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, |e| events.push((e.name.to_owned(), e.data.to_owned()))).unwrap();
        }
        decoder.finish(|e| events.push((e.name.to_owned(), e.data.to_owned())));
        events
    }

    fn pairs(events: &[(&str, &str)]) -> Vec<(String, String)> {
        events.iter().map(|(n, d)| ((*n).to_owned(), (*d).to_owned())).collect()
    }

    const MIXED: &[u8] =
        b"\xEF\xBB\xBF: hello\r\ndata: one\r\n\r\nevent: e\rdata:two\rdata\rdata:  three\r\r\
        id: 7\nretry: 3\n\n:\n\nevent: lost\n\ndata: \xE6\x97\xA5\xE6\x9C\xAC\n\ndata: last";

    #[test]
    fn decodes_every_line_ending_comment_and_field() {
        let want = pairs(&[("", "one"), ("e", "two\n\n three"), ("", "日本"), ("", "last")]);
        assert_eq!(decode(&[MIXED]), want);
    }

    #[test]
    fn any_two_way_split_gives_the_same_events() {
        let want = decode(&[MIXED]);
        for at in 0..=MIXED.len() {
            assert_eq!(decode(&[&MIXED[..at], &MIXED[at..]]), want, "split at {at}");
        }
        let bytes: Vec<&[u8]> = MIXED.chunks(1).collect();
        assert_eq!(decode(&bytes), want);
    }

    #[test]
    fn an_event_says_where_it_ended() {
        let mut decoder = SseDecoder::default();
        let mut ends = Vec::new();
        decoder.push(b"data: a\n\ndata: b\r\n\r\ndata: c", |e| ends.push(e.end)).unwrap();
        assert_eq!(ends, [9, 20]);
        assert!(decoder.is_mid_event());
    }

    #[test]
    fn a_split_line_end_belongs_to_the_line_before() {
        let mut decoder = SseDecoder::default();
        let mut ends = Vec::new();
        decoder.push(b"data: a\r\n\r", |e| ends.push(e.end)).unwrap();
        assert_eq!((decoder.line_end_in(b"\ndata: b"), decoder.line_end_in(b"data: b")), (1, 0));
        decoder.push(b"\ndata: b\n\n", |e| ends.push(e.end)).unwrap();
        assert_eq!((ends, decoder.line_end_in(b"\n")), (vec![10, 10], 0));
    }

    #[test]
    fn a_cut_event_is_delivered_and_an_empty_one_is_not() {
        assert_eq!(decode(&[b"data: a\n"]), pairs(&[("", "a")]));
        assert_eq!(decode(&[b"event: x\n\n\n\n"]), pairs(&[]));
        assert_eq!(decode(&[b"data\n\n"]), pairs(&[("", "")]));
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = SseDecoder::new(16);
        assert!(decoder.push(b"data: 0123", |_| {}).is_ok());
        let error = decoder.push(b"0123456789", |_| {}).unwrap_err();
        assert_eq!(error, SseError::EventTooLarge { max_bytes: 16 });
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(
            events in prop::collection::vec(("[a-z]{0,5}", "[^\r\u{feff}]{0,20}"), 0..6),
            cut in 1_usize..9,
        ) {
            let mut bytes = Vec::new();
            for (name, data) in &events {
                encode(name, data, &mut bytes);
            }
            prop_assert_eq!(decode(&bytes.chunks(cut).collect::<Vec<_>>()), events);
        }
    }
}
