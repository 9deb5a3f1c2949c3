//! Keeps long work off the async workers.

use super::error::Refusal;

/// Largest body worked through on an async worker, bytes: about a quarter of a millisecond's parsing.
const MAX_INLINE_BYTES: usize = 128 << 10;

/// Does work over a whole body of that many bytes, for a large one on a blocking thread.
///
/// # Errors
/// [`Refusal::Internal`] where it panicked.
pub(super) async fn over_body<T: Send + 'static>(
    body_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    if body_bytes <= MAX_INLINE_BYTES {
        return Ok(work());
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Refusal::Internal { why: "the body could not be worked through" })
}
