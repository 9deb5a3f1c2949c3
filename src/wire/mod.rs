//! The bytes on the wire: OpenAI requests and answers, server-sent events, snapshots, body edits.
//!
//! Pure: everything works on slices and returns values or errors with a place in them. To speak
//! another wire format, add a file here and let the room that needs it call it.

pub mod body;
pub mod openai;
pub mod snapshot;
pub mod sse;
