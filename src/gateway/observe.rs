//! Watches an answer pass: content, tokens, usage and the end, without changing a byte of it.
//!
//! The one exception is the usage chunk that the gateway itself asked for, which is taken out again.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::{
    domain::Ending,
    pool::Reservation,
    wire::{
        openai::{ChunkFacts, Usage, observe_chunk, usage_of_answer},
        sse::SseDecoder,
    },
};

/// Largest whole answer kept to read its usage, bytes; a larger one passes with its usage unknown.
const MAX_WHOLE_BYTES: usize = 16 << 20;

/// What watches one answer.
pub(super) enum Observer {
    /// A stream of events.
    Events(Events),
    /// Anything else.
    Whole(Whole),
}

/// Watches server-sent events.
pub(super) struct Events {
    /// Absent once the stream ended or an event was too large to follow.
    decoder: Option<SseDecoder>,
    /// An event was too large to follow; bytes pass unwatched.
    blind: bool,
    /// Take the usage chunk out.
    strip_usage: bool,
    /// The last event was taken out.
    dropped_last: bool,
    /// Bytes of an incomplete event.
    held: BytesMut,
    /// Events seen so far.
    pub(super) seen: u64,
    /// The end marker came.
    pub(super) done: bool,
    /// The upstream reported an error in an event.
    pub(super) error: Option<ErrorEvent>,
    /// Content came.
    pub(super) content: bool,
}

/// An error that the upstream reported in its stream.
#[derive(Clone, Debug)]
pub(super) struct ErrorEvent {
    /// The HTTP status it names.
    pub(super) status: Option<u16>,
    /// The event's data, whole: it stands for an answer where none began.
    pub(super) data: String,
}

/// Watches a body that is one document.
#[derive(Default)]
pub(super) struct Whole {
    chunks: Vec<Bytes>,
    bytes: usize,
}

impl Observer {
    /// Makes the observer of an answer by its kind.
    pub(super) fn new(events: bool, strip_usage: bool) -> Self {
        if events {
            Self::Events(Events {
                decoder: Some(SseDecoder::default()),
                blind: false,
                strip_usage,
                dropped_last: false,
                held: BytesMut::new(),
                seen: 0,
                done: false,
                error: None,
                content: false,
            })
        } else {
            Self::Whole(Whole::default())
        }
    }

    /// Takes the next chunk and appends to `out` what goes to the client.
    pub(super) fn push(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>, reservation: &mut Reservation) {
        match self {
            Self::Events(events) => events.push(&chunk, out, reservation),
            Self::Whole(whole) => {
                whole.push(&chunk);
                out.push_back(chunk);
            }
        }
    }

    /// Ends the answer, cleanly as far as the connection tells.
    pub(super) fn finish(&mut self, out: &mut VecDeque<Bytes>, reservation: &mut Reservation) {
        match self {
            Self::Events(events) => events.finish(out, reservation),
            Self::Whole(whole) => {
                if let Some(usage) = whole.usage() {
                    note_usage(usage, reservation);
                }
            }
        }
    }
}

impl Events {
    /// Returns whether the bytes pass unwatched from here on.
    pub(super) const fn is_blind(&self) -> bool {
        self.blind
    }

    /// Passes events on whole: a client can use no part of one, and a break leaves no fragment.
    fn push(&mut self, chunk: &Bytes, out: &mut VecDeque<Bytes>, reservation: &mut Reservation) {
        let Some(mut decoder) = self.decoder.take() else {
            out.push_back(chunk.clone());
            return;
        };
        // Complete events between these two are yet to be passed on. A line end split off the last
        // event goes its way.
        let line_end = if self.held.is_empty() { decoder.line_end_in(chunk) } else { 0 };
        let mut from = if self.dropped_last { line_end } else { 0 };
        let mut upto = line_end;
        let decoded = decoder.push(chunk, |event| {
            let facts = self.note(event.data, reservation);
            self.dropped_last = facts.usage_only && self.strip_usage;
            if self.dropped_last {
                if upto > from {
                    self.pass(chunk.slice(from..upto), out);
                }
                // What is still held is the beginning of this very event.
                self.held.clear();
                from = event.end;
            }
            upto = event.end;
        });
        if decoded.is_err() {
            tracing::warn!("an upstream event is too large to follow; the stream passes unwatched");
            self.blind = true;
            self.pass(chunk.slice(from..), out);
            return;
        }
        if !decoder.is_mid_event() {
            upto = chunk.len();
        }
        if upto > from {
            self.pass(chunk.slice(from..upto), out);
        }
        self.held.extend_from_slice(&chunk[upto..]);
        self.decoder = Some(decoder);
    }

    fn finish(&mut self, out: &mut VecDeque<Bytes>, reservation: &mut Reservation) {
        let mut usage_only = false;
        if let Some(decoder) = self.decoder.take() {
            decoder.finish(|event| usage_only = self.note(event.data, reservation).usage_only);
        }
        if usage_only && self.strip_usage {
            self.held.clear();
        }
        self.pass(Bytes::new(), out);
    }

    /// Passes on what is held, then `bytes`.
    fn pass(&mut self, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        if !self.held.is_empty() {
            out.push_back(self.held.split().freeze());
        }
        if !bytes.is_empty() {
            out.push_back(bytes);
        }
    }

    fn note(&mut self, data: &str, reservation: &mut Reservation) -> ChunkFacts {
        let facts = observe_chunk(data);
        self.seen += 1;
        if facts.content_choices > 0 {
            self.content = true;
            reservation.first_token();
            reservation.tokens(facts.content_choices);
        }
        if let Some(usage) = facts.usage {
            note_usage(usage, reservation);
        }
        if let Some(error) = facts.error {
            self.error = Some(ErrorEvent { status: error.status, data: data.to_owned() });
            reservation.ends_as(Ending::Failed);
        }
        if facts.done {
            self.done = true;
            // Clients hang up at the marker; that is no cancellation.
            if self.error.is_none() {
                reservation.ends_as(Ending::Complete);
            }
        }
        facts
    }
}

impl Whole {
    fn push(&mut self, chunk: &Bytes) {
        self.bytes = self.bytes.saturating_add(chunk.len());
        if self.bytes <= MAX_WHOLE_BYTES {
            self.chunks.push(chunk.clone());
        } else {
            self.chunks.clear();
        }
    }

    fn usage(&mut self) -> Option<Usage> {
        match std::mem::take(&mut self.chunks).as_slice() {
            [] => None,
            [whole] => usage_of_answer(whole),
            chunks => usage_of_answer(&chunks.concat()),
        }
    }
}

/// Passes counts on where they are told: half of them would make a cost that is none.
fn note_usage(usage: Usage, reservation: &mut Reservation) {
    if let (Some(prompt_tokens), Some(output_tokens)) = (usage.prompt_tokens, usage.output_tokens()) {
        reservation.usage(prompt_tokens, usage.cached_tokens(), output_tokens);
    }
}
