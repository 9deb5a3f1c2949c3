//! What happens next: events in order of time, then of rank, then of their making.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::lab::Item;

/// Something that happens at one moment.
pub(super) enum Event {
    /// An engine ends a batch or takes a request in.
    Wake(usize),
    /// A token comes to the router: of which request and attempt, its number, whether it is the last.
    Token { request: usize, attempt: u32, number: u32, last: bool },
    /// An instance fails.
    Fail(usize),
    /// An instance comes back.
    Recover(usize),
    /// The measured time begins (0) or ends (1).
    Mark(usize),
    /// Every instance's state is captured.
    Capture,
    /// The oldest captured states come to the routers.
    Deliver,
    /// A request comes; absent: the workload's next.
    Arrive(Option<Box<Item>>),
    /// A failed request goes to another instance.
    Retry(usize),
}

impl Event {
    /// Returns its place among events of one moment: engines before what is seen of them, and decisions
    /// last, when everything that could be known is.
    const fn rank(&self) -> u8 {
        match self {
            Self::Wake(_) => 0,
            Self::Token { .. } => 1,
            Self::Fail(_) | Self::Recover(_) => 2,
            Self::Mark(_) => 3,
            Self::Capture => 4,
            Self::Deliver => 5,
            Self::Retry(_) => 6,
            Self::Arrive(_) => 7,
        }
    }
}

/// Events to come.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Due>>,
    made: u64,
}

struct Due {
    at_us: u64,
    rank: u8,
    number: u64,
    event: Event,
}

impl Due {
    const fn order(&self) -> (u64, u8, u64) {
        (self.at_us, self.rank, self.number)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl Events {
    /// Adds an event.
    pub(super) fn push(&mut self, at_us: u64, event: Event) {
        self.heap.push(Reverse(Due { at_us, rank: event.rank(), number: self.made, event }));
        self.made += 1;
    }

    /// Takes the next event and its time.
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(due)| (due.at_us, due.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_before_rank_and_rank_before_making() {
        let mut events = Events::default();
        events.push(2, Event::Wake(0));
        events.push(1, Event::Arrive(None));
        events.push(1, Event::Deliver);
        events.push(1, Event::Wake(7));
        events.push(1, Event::Wake(3));
        let order: Vec<(u64, u8)> =
            std::iter::from_fn(|| events.pop()).map(|(at, event)| (at, event.rank())).collect();
        assert_eq!(order, [(1, 0), (1, 0), (1, 5), (1, 7), (2, 0)]);
        events.push(5, Event::Wake(7));
        events.push(5, Event::Wake(3));
        assert!(matches!(events.pop(), Some((5, Event::Wake(7)))));
    }
}
