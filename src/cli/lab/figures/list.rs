//! Every figure, by its number among the paper's captions.

use super::{gains, inputs::Inputs, latency, lengths, routing};
use crate::draw::Picture;

/// One figure.
pub(super) struct FigureEntry {
    /// Its number among the paper's captions.
    pub(super) number: u32,
    /// The scenarios that it needs.
    pub(super) scenarios: &'static [&'static str],
    /// What it shows.
    pub(super) caption: &'static str,
    /// Makes its picture; absent: there are no runs for it.
    pub(super) make: fn(&Inputs) -> Option<Picture>,
}

impl FigureEntry {
    /// Returns its name in files, anchors and notes, such as `figure-08`.
    pub(super) fn id(&self) -> String {
        format!("figure-{:02}", self.number)
    }
}

/// The figures, by number.
pub(super) const FIGURES: &[FigureEntry] = &[
    FigureEntry {
        number: 1,
        scenarios: &["poisson"],
        caption: "Where requests go as load grows. A bar is all requests at one arrival rate, its colours the \
                  models that served them, its hatched parts those that missed their TTFT target.",
        make: routing::composition,
    },
    FigureEntry {
        number: 4,
        scenarios: &["requests"],
        caption: "Two TTFT estimates of the same requests against the TTFT that came, on the smallest model: \
                  pending prefill over throughput (eq. 8) and the replay of batches (BEA, eq. 11). On the dashed \
                  line estimate and truth agree.",
        make: latency::ttft_estimates,
    },
    FigureEntry {
        number: 5,
        scenarios: &[],
        caption: "Times of single batches of the smallest model's simulated engine under a mixed load that the \
                  fit has not seen, against those that eq. 12 predicts with the coefficients that ship.",
        make: latency::batch_times,
    },
    FigureEntry {
        number: 8,
        scenarios: &["poisson"],
        caption: "OnTimeUtility under Poisson arrivals: the mean over all requests of score less λ times cost, \
                  late answers counting nothing. Bands are 95% intervals over seeds. Thin lines are routers that \
                  the paper does not compare; the oracle knows every score and length.",
        make: routing::utility_by_rate,
    },
    FigureEntry {
        number: 9,
        scenarios: &["delta", "delta-others"],
        caption: "Utility against TTFT. The curve is eq. 7 with δ from none (right) to very dear \
                  (left); points are other routers at their best options. Up and to the left is better.",
        make: gains::trade_off,
    },
    FigureEntry {
        number: 10,
        scenarios: &["bursty"],
        caption: "OnTimeUtility under bursts: two-state Markov-modulated Poisson arrivals, a fifth of the time in \
                  the high state, whose rate is r times that of the low one.",
        make: routing::utility_by_burst,
    },
    FigureEntry {
        number: 12,
        scenarios: &["requests"],
        caption: "How long prompts are, by task: the share of requests in each twelfth of a decade, cut evenly on the \
                  log axis.",
        make: lengths::prompts,
    },
    FigureEntry {
        number: 13,
        scenarios: &["requests"],
        caption: "How long answers are, by task and model: boxes hold the middle half, whiskers reach from the \
                  5th to the 95th percentile.",
        make: lengths::answers,
    },
    FigureEntry {
        number: 14,
        scenarios: &["staleness"],
        caption: "What late snapshots cost BEAR: OnTimeUtility over that with fresh ones, seed by \
                  seed, for one router and for four that share the pool with a quarter of the traffic each. The \
                  paper loses 7% at 1000 ms.",
        make: gains::staleness,
    },
    FigureEntry {
        number: 16,
        scenarios: &["estimator"],
        caption: "The same rule and predictors under two TTFT estimators: the replay of batches, and pending \
                  prefill over throughput.",
        make: gains::estimators,
    },
    FigureEntry {
        number: 17,
        scenarios: &["lambda"],
        caption: "OnTimeUtility as λ makes cost weigh more (the paper's text calls this figure 18 once). Utility \
                  falls with λ by its definition.",
        make: gains::lambda,
    },
    FigureEntry {
        number: 18,
        scenarios: &["poisson"],
        caption: "Share of requests whose first token came within their target.",
        make: routing::attainment_by_rate,
    },
    FigureEntry {
        number: 19,
        scenarios: &["requests"],
        caption: "What each router believed of the instance it chose, against what came: TTFT for BEA, prefill \
                  throughput and vLLM-SR, the whole answer's latency for the others, as each defines it. On the \
                  dashed line belief and truth agree.",
        make: latency::beliefs_by_router,
    },
];
