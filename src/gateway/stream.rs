//! The answer's body on its way to the client. It owns the reservation, so that every end settles it.
//!
//! Dropping it, as happens when the client leaves, drops the upstream body and with it the connection:
//! the engine sees the hang-up.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::Span;

use super::{error::broken_stream, observe::Observer, record::Journey};
use crate::{domain::Ending, pool::Reservation, wire::sse};

/// Why an answer that is no event stream broke off; ends the client's connection.
#[derive(Debug, thiserror::Error)]
#[error("the upstream's answer broke off: {why}")]
pub(super) struct BrokeOff {
    why: String,
}

/// One attempt's answer while it passes.
pub(super) struct AnswerBody {
    upstream: Option<Incoming>,
    observer: Observer,
    /// Pieces ready for the client.
    out: VecDeque<Bytes>,
    /// A break to report once the pieces are out.
    broken: Option<BrokeOff>,
    reservation: Option<Reservation>,
    /// Its length is only marked by the connection's end, so a break looks like an end.
    close_delimited: bool,
    timer: Pin<Box<Sleep>>,
    armed: bool,
    idle: Duration,
    ends_at: Instant,
    instance: String,
    span: Span,
    /// Dropped last: its log line reads what the reservation settled.
    journey: Option<Journey>,
}

/// How an answer is watched and bounded.
pub(super) struct Watch {
    pub(super) observer: Observer,
    pub(super) close_delimited: bool,
    /// Longest silence.
    pub(super) idle: Duration,
    /// When its time is up altogether.
    pub(super) ends_at: Instant,
    pub(super) instance: String,
    pub(super) span: Span,
}

/// What came of waiting for the first event.
pub(super) enum First {
    /// It is there, or the answer ended without one.
    Ready,
    /// The upstream's first event reports an error.
    Error(String),
    /// The answer broke off before it.
    Broken(String),
}

impl AnswerBody {
    /// Wraps an upstream body.
    pub(super) fn new(upstream: Incoming, reservation: Reservation, watch: Watch) -> Self {
        Self {
            upstream: Some(upstream),
            observer: watch.observer,
            out: VecDeque::new(),
            broken: None,
            reservation: Some(reservation),
            close_delimited: watch.close_delimited,
            timer: Box::pin(sleep_until(watch.ends_at)),
            armed: false,
            idle: watch.idle,
            ends_at: watch.ends_at,
            instance: watch.instance,
            span: watch.span,
            journey: None,
        }
    }

    /// Hands over the request's record, to end with the body.
    pub(super) fn carry(&mut self, journey: Journey) {
        self.journey = Some(journey);
    }

    /// Takes the reservation out, where the answer is not passed on after all.
    pub(super) fn abandon(mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    /// Reads until there is something worth passing on; nothing goes to the client before.
    pub(super) async fn first_event(&mut self) -> First {
        loop {
            match &self.observer {
                Observer::Events(events) if events.seen > 0 => {
                    return match &events.error {
                        Some(error) if !events.content => First::Error(error.clone()),
                        _ => First::Ready,
                    };
                }
                Observer::Whole(_) if !self.out.is_empty() => return First::Ready,
                _ => {}
            }
            let Some(upstream) = &mut self.upstream else { return First::Ready };
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *upstream).poll_frame(cx)).await;
            match frame {
                Some(Ok(frame)) => self.take(frame),
                Some(Err(error)) => return First::Broken(describe(&error)),
                None => self.upstream_ended(),
            }
        }
    }

    fn take(&mut self, frame: Frame<Bytes>) {
        self.armed = false;
        let (Ok(chunk), Some(reservation)) = (frame.into_data(), &mut self.reservation) else { return };
        self.observer.push(chunk, &mut self.out, reservation);
        // A body of known length is not polled past its end by the server: settle here.
        if self.upstream.as_ref().is_some_and(Body::is_end_stream) {
            self.upstream_ended();
        }
    }

    fn upstream_ended(&mut self) {
        self.upstream = None;
        let Some(mut reservation) = self.reservation.take() else { return };
        self.observer.finish(&mut self.out, &mut reservation);
        match &self.observer {
            Observer::Events(events) if !events.done && self.close_delimited => {
                self.reservation = Some(reservation);
                self.break_off(Ending::Failed, "the connection closed before the end of the stream");
            }
            Observer::Events(events) if events.error.is_some() => reservation.finish(Ending::Failed),
            _ => reservation.finish(Ending::Complete),
        }
    }

    /// Ends the answer in the middle: an `error` event and no `[DONE]`, or a broken connection.
    fn break_off(&mut self, ending: Ending, why: &str) {
        self.upstream = None;
        if let Some(reservation) = self.reservation.take() {
            reservation.finish(ending);
        }
        tracing::warn!(parent: &self.span, instance = self.instance, why, "an answer broke off in the middle");
        match &self.observer {
            // The marker is out: the answer was whole.
            Observer::Events(events) if events.done => {}
            Observer::Events(_) => {
                let message = format!("instance `{}` broke off: {why}", self.instance);
                let mut event = Vec::new();
                sse::encode("error", &broken_stream(&message, ending == Ending::TimedOut), &mut event);
                self.out.push_back(event.into());
            }
            Observer::Whole(_) => self.broken = Some(BrokeOff { why: why.to_owned() }),
        }
    }

    /// Returns why the wait is over for good, where it is.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        if !self.armed {
            self.armed = true;
            let silent_until = Instant::now() + self.idle;
            self.timer.as_mut().reset(silent_until.min(self.ends_at));
        }
        std::task::ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(if Instant::now() >= self.ends_at { "total time-out" } else { "idle time-out" })
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        let this = self.get_mut();
        loop {
            if let Some(chunk) = this.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if let Some(broken) = this.broken.take() {
                return Poll::Ready(Some(Err(broken)));
            }
            let Some(upstream) = &mut this.upstream else {
                this.journey = None;
                return Poll::Ready(None);
            };
            match Pin::new(upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => this.take(frame),
                Poll::Ready(Some(Err(error))) => this.break_off(Ending::Failed, &describe(&error)),
                Poll::Ready(None) => this.upstream_ended(),
                Poll::Pending => {
                    let why = std::task::ready!(this.poll_patience(cx));
                    this.break_off(Ending::TimedOut, why);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_none() && self.out.is_empty() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Says what broke, with its causes.
pub(super) fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
