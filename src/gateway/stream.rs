//! The answer's body on its way to the client. It owns the reservation, so that every end settles it.
//!
//! Dropping it, as happens when the client leaves, drops the upstream body and with it the connection:
//! the engine sees the hang-up. A task of its own ends it when its time is up, for a body is only
//! polled while the client reads.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{
    task::AbortHandle,
    time::{Instant, Sleep, sleep_until},
};
use tracing::Span;

use super::{
    error::{Verdict, broken_stream, verdict_of_event},
    fault::{Fault, Health, Limit},
    observe::{ErrorEvent, Observer},
    record::Journey,
    spans,
};
use crate::{domain::Ending, pool::Reservation, wire::sse};

/// Why an answer that is no event stream broke off; ends the client's connection.
#[derive(Debug, thiserror::Error)]
#[error("the upstream's answer broke off")]
pub(super) struct BrokeOff(#[source] Fault);

/// One attempt's answer while it passes.
pub(super) struct Answer {
    upstream: Option<Incoming>,
    observer: Observer,
    /// Pieces ready for the client.
    out: VecDeque<Bytes>,
    /// A break to report once the pieces are out.
    broken: Option<BrokeOff>,
    reservation: Option<Reservation>,
    needs_marker: bool,
    timer: Pin<Box<Sleep>>,
    armed: bool,
    idle: Duration,
    ends_at: Instant,
    instance: String,
    health: Health,
    /// What the end says of the instance, until its health has heard it.
    verdict: Verdict,
    span: Span,
    /// Dropped last: its log line reads what the reservation settled.
    journey: Option<Journey>,
}

/// How an answer is watched and bounded.
pub(super) struct Watch {
    pub(super) observer: Observer,
    /// Only the end marker tells a whole stream from one cut short: the connection's end is its end.
    pub(super) needs_marker: bool,
    /// Longest silence.
    pub(super) idle: Duration,
    /// When its time is up altogether.
    pub(super) ends_at: Instant,
    pub(super) instance: String,
    pub(super) health: Health,
    pub(super) span: Span,
}

/// What came of waiting for the first event.
pub(super) enum First {
    /// It is there, or the document ended without any.
    Ready,
    /// The upstream's first event reports an error.
    Error(ErrorEvent),
    /// The answer ended or broke off before it.
    Broken(Fault),
}

impl Answer {
    /// Wraps an upstream body.
    pub(super) fn new(upstream: Incoming, reservation: Reservation, watch: Watch) -> Self {
        Self {
            upstream: Some(upstream),
            observer: watch.observer,
            out: VecDeque::new(),
            broken: None,
            reservation: Some(reservation),
            needs_marker: watch.needs_marker,
            timer: Box::pin(sleep_until(watch.ends_at)),
            armed: false,
            idle: watch.idle,
            ends_at: watch.ends_at,
            instance: watch.instance,
            health: watch.health,
            verdict: Verdict::Unknown,
            span: watch.span,
            journey: None,
        }
    }

    /// Ends the attempt, where the answer is not passed on after all.
    pub(super) fn abandon(mut self, ending: Ending) {
        if let Some(reservation) = self.reservation.take() {
            reservation.finish(ending);
        }
    }

    /// Reads until there is something worth passing on; nothing goes to the client before.
    pub(super) async fn first_event(&mut self) -> First {
        loop {
            if let Some(first) = self.first() {
                return first;
            }
            let Some(upstream) = &mut self.upstream else { return First::Ready };
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *upstream).poll_frame(cx)).await;
            if let Err(fault) = self.take(frame) {
                return First::Broken(fault);
            }
        }
    }

    fn first(&self) -> Option<First> {
        match &self.observer {
            Observer::Events(events) => match &events.error {
                Some(error) if !events.content => Some(First::Error(error.clone())),
                _ => (events.seen > 0 || events.is_blind()).then_some(First::Ready),
            },
            Observer::Whole(_) => (!self.out.is_empty()).then_some(First::Ready),
        }
    }

    /// Hands the answer over to the client's connection, with the request's record to end with it.
    pub(super) fn into_body(mut self, journey: Journey) -> AnswerBody {
        self.journey = Some(journey);
        self.tell_health();
        let (under_way, ends_at) = (self.upstream.is_some(), self.ends_at);
        let answer = Arc::new(Mutex::new(self));
        let deadline = under_way.then(|| {
            let answer = Arc::downgrade(&answer);
            let task = tokio::spawn(async move {
                sleep_until(ends_at).await;
                if let Some(answer) = answer.upgrade() {
                    lock(&answer).expire();
                }
            });
            task.abort_handle()
        });
        AnswerBody { answer, deadline }
    }

    /// Takes what the upstream gave next; its end is checked.
    fn take(&mut self, frame: Option<Result<Frame<Bytes>, hyper::Error>>) -> Result<(), Fault> {
        self.armed = false;
        let frame = match frame {
            None => return self.end(),
            Some(Err(error)) => return Err(Fault::Read(error)),
            Some(Ok(frame)) => frame,
        };
        let (Ok(chunk), Some(reservation)) = (frame.into_data(), &mut self.reservation) else {
            return Ok(());
        };
        self.observer.push(chunk, &mut self.out, reservation);
        // A body of known length is not polled past its end by the server: settle here.
        if self.upstream.as_ref().is_some_and(Body::is_end_stream) { self.end() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.upstream = None;
        let Some(reservation) = &mut self.reservation else { return Ok(()) };
        self.observer.finish(&mut self.out, reservation);
        let mut ending = Ending::Complete;
        self.verdict = Verdict::Answered;
        if let Observer::Events(events) = &self.observer
            && !events.is_blind()
        {
            if events.seen == 0 {
                return Err(Fault::Empty);
            }
            if !events.done && self.needs_marker {
                return Err(Fault::NoMarker);
            }
            if let Some(error) = &events.error {
                ending = Ending::Failed;
                self.verdict = verdict_of_event(error.status);
            }
        }
        if let Some(reservation) = self.reservation.take() {
            reservation.finish(ending);
        }
        Ok(())
    }

    /// Ends the answer in the middle: an `error` event and no `[DONE]`, or a broken connection.
    fn break_off(&mut self, fault: Fault) {
        self.upstream = None;
        if matches!(&self.observer, Observer::Events(events) if events.done && events.error.is_none()) {
            // The marker is out: the answer was whole, however its connection ends.
            if let Some(reservation) = self.reservation.take() {
                reservation.finish(Ending::Complete);
            }
            self.verdict = Verdict::Answered;
            return;
        }
        if let Some(reservation) = self.reservation.take() {
            reservation.finish(fault.ending());
        }
        tracing::warn!(parent: &self.span, instance = self.instance, why = %fault, "an answer broke off in the middle");
        spans::note_failure(&self.span, fault.ending().label());
        self.verdict = if fault.blames_instance() { Verdict::Failed } else { Verdict::Unknown };
        match &self.observer {
            // The marker is out after an error event: nothing more to say.
            Observer::Events(events) if events.done => {}
            Observer::Events(_) => {
                let mut event = Vec::new();
                sse::encode("error", &broken_stream(&self.instance, &fault), &mut event);
                self.out.push_back(event.into());
            }
            Observer::Whole(_) => self.broken = Some(BrokeOff(fault)),
        }
    }

    /// Ends an answer whose time is up, whether or not its client reads.
    fn expire(&mut self) {
        if self.upstream.is_some() {
            self.break_off(Fault::TimedOut(Limit::Total));
            self.tell_health();
            self.journey = None;
        }
    }

    fn tell_health(&mut self) {
        match std::mem::replace(&mut self.verdict, Verdict::Unknown) {
            Verdict::Failed => self.health.failed(),
            Verdict::Answered => self.health.answered(),
            Verdict::Unknown => {}
        }
    }

    /// Waits until the patience is over for good.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<Limit> {
        if !self.armed {
            self.armed = true;
            let silent_until = Instant::now() + self.idle;
            self.timer.as_mut().reset(silent_until.min(self.ends_at));
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(if Instant::now() >= self.ends_at { Limit::Total } else { Limit::Idle })
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        loop {
            if let Some(chunk) = self.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if let Some(broken) = self.broken.take() {
                return Poll::Ready(Some(Err(broken)));
            }
            let Some(upstream) = &mut self.upstream else {
                self.journey = None;
                return Poll::Ready(None);
            };
            let taken = match Pin::new(upstream).poll_frame(cx) {
                Poll::Ready(frame) => self.take(frame),
                Poll::Pending => Err(Fault::TimedOut(ready!(self.poll_patience(cx)))),
            };
            if let Err(fault) = taken {
                self.break_off(fault);
            }
            self.tell_health();
        }
    }
}

/// The body that the client's connection reads: an [`Answer`] and its deadline.
pub(super) struct AnswerBody {
    answer: Arc<Mutex<Answer>>,
    deadline: Option<AbortHandle>,
}

fn lock(answer: &Mutex<Answer>) -> MutexGuard<'_, Answer> {
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        lock(&self.answer).poll_next(cx)
    }

    fn is_end_stream(&self) -> bool {
        let answer = lock(&self.answer);
        answer.upstream.is_none() && answer.out.is_empty() && answer.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(deadline) = self.deadline.take() {
            deadline.abort();
        }
    }
}
