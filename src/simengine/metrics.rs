//! What `GET /metrics` shows: vLLM's own names, labels and buckets (release 0.32), so that a dashboard or
//! a router made for vLLM reads a simulated engine too. Times are simulated seconds.

use std::fmt::Write as _;

use crate::domain::snapshot::EngineParams;

/// Buckets of `vllm:time_to_first_token_seconds`.
const TTFT_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Buckets of `vllm:inter_token_latency_seconds`.
const INTER_TOKEN_BUCKETS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Buckets of whole-request times.
const REQUEST_BUCKETS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

/// A cumulative histogram with fixed buckets.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], count: 0, sum: 0.0 }
    }

    /// Counts one value.
    pub(super) fn record(&mut self, value: f64) {
        let first = self.bounds.partition_point(|bound| *bound < value);
        for count in &mut self.counts[first..] {
            *count += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}

/// How a request left the engine, in vLLM's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// It ended by itself.
    Stop,
    /// It met its cap.
    Length,
    /// Its client left.
    Abort,
}

/// What a simulated engine counts about itself over its life.
#[derive(Clone, Debug)]
pub(super) struct EngineMetrics {
    /// Prompt tokens of requests that were first scheduled.
    pub(super) prompt_tokens: u64,
    /// Output tokens.
    pub(super) generation_tokens: u64,
    /// Requests by [`Finished`].
    pub(super) finished: [u64; 3],
    /// From the request at the server to its first token, seconds.
    pub(super) time_to_first_token: Histogram,
    /// Between two tokens of a request, seconds.
    pub(super) inter_token_latency: Histogram,
    /// From the request at the server to its last token, seconds.
    pub e2e_request_latency: Histogram,
    /// From the queue to the first batch, seconds.
    pub(super) request_queue_time: Histogram,
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self {
            prompt_tokens: 0,
            generation_tokens: 0,
            finished: [0; 3],
            time_to_first_token: Histogram::new(TTFT_BUCKETS),
            inter_token_latency: Histogram::new(INTER_TOKEN_BUCKETS),
            e2e_request_latency: Histogram::new(REQUEST_BUCKETS),
            request_queue_time: Histogram::new(REQUEST_BUCKETS),
        }
    }
}

/// What the engine is doing now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Gauges {
    /// Running requests.
    pub(super) running: usize,
    /// Waiting requests.
    pub(super) waiting: usize,
    /// Held share of the KV blocks, in `[0,1]`.
    pub(super) kv_cache_usage: f64,
    /// Tokens looked up in the prefix cache.
    pub(super) prefix_cache_queries: u64,
    /// Tokens found there.
    pub(super) prefix_cache_hits: u64,
    /// Preemptions.
    pub(super) preemptions: u64,
}

impl EngineMetrics {
    /// Counts a request that left.
    pub(super) const fn finish(&mut self, how: Finished) {
        self.finished[how as usize] += 1;
    }

    /// Writes Prometheus text.
    #[must_use]
    pub(super) fn render(&self, gauges: Gauges, model: &str, params: &EngineParams) -> String {
        let mut page = Page { text: String::with_capacity(16 << 10), labels: labels(model) };
        page.gauge("num_requests_running", "Requests in the running batch.", gauges.running as f64);
        page.gauge("num_requests_waiting", "Requests waiting to be processed.", gauges.waiting as f64);
        page.waiting_by_reason(gauges.waiting);
        page.gauge(
            "kv_cache_usage_perc",
            "Share of the KV cache in use; 1 means all.",
            gauges.kv_cache_usage,
        );
        page.counter(
            "prefix_cache_queries",
            "Tokens looked up in the prefix cache.",
            gauges.prefix_cache_queries,
        );
        page.counter("prefix_cache_hits", "Tokens found in the prefix cache.", gauges.prefix_cache_hits);
        page.counter("num_preemptions", "Preemptions.", gauges.preemptions);
        page.counter("prompt_tokens", "Prompt tokens processed.", self.prompt_tokens);
        page.counter("generation_tokens", "Output tokens made.", self.generation_tokens);
        page.finished(self.finished);
        page.histogram("time_to_first_token_seconds", "Time to first token.", &self.time_to_first_token);
        page.histogram("inter_token_latency_seconds", "Time between tokens.", &self.inter_token_latency);
        page.histogram("e2e_request_latency_seconds", "Time of a whole request.", &self.e2e_request_latency);
        page.histogram("request_queue_time_seconds", "Time in the waiting queue.", &self.request_queue_time);
        page.cache_config(params);
        page.text
    }
}

fn labels(model: &str) -> String {
    let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("engine=\"0\",model_name=\"{model}\"")
}

struct Page {
    text: String,
    labels: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        _ = writeln!(self.text, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}");
    }

    fn line(&mut self, name: &str, extra: &str, value: f64) {
        _ = writeln!(self.text, "vllm:{name}{{{}{extra}}} {value:?}", self.labels);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(&format!("{name}_total"), "counter", help);
        self.line(&format!("{name}_total"), "", value as f64);
    }

    /// Requests here wait for memory or a seat only; nothing defers them.
    fn waiting_by_reason(&mut self, waiting: usize) {
        self.head("num_requests_waiting_by_reason", "gauge", "Waiting requests, by reason.");
        for (reason, count) in [("capacity", waiting), ("deferred", 0)] {
            self.line("num_requests_waiting_by_reason", &format!(",reason=\"{reason}\""), count as f64);
        }
    }

    fn finished(&mut self, counts: [u64; 3]) {
        self.head("request_success_total", "counter", "Requests that left, by reason.");
        for (reason, count) in ["stop", "length", "abort"].into_iter().zip(counts) {
            self.line("request_success_total", &format!(",finished_reason=\"{reason}\""), count as f64);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            self.line(&bucket, &format!(",le=\"{bound:?}\""), *count as f64);
        }
        self.line(&bucket, ",le=\"+Inf\"", histogram.count as f64);
        self.line(&format!("{name}_count"), "", histogram.count as f64);
        self.line(&format!("{name}_sum"), "", histogram.sum);
    }

    fn cache_config(&mut self, params: &EngineParams) {
        self.head("cache_config_info", "gauge", "The cache's configuration.");
        let caching = if params.enable_prefix_caching { "True" } else { "False" };
        _ = writeln!(
            self.text,
            "vllm:cache_config_info{{block_size=\"{}\",enable_prefix_caching=\"{caching}\",engine=\"0\",\
             num_gpu_blocks=\"{}\"}} 1.0",
            params.block_size, params.num_kv_blocks
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::Profile;

    #[test]
    fn buckets_are_cumulative_and_closed_above() {
        let mut h = Histogram::new(&[1.0, 2.0, 3.0]);
        for value in [0.5, 2.0, 2.5, 9.0] {
            h.record(value);
        }
        assert_eq!((h.counts.as_slice(), h.count, h.sum), ([1, 2, 3].as_slice(), 4, 14.0));
    }

    #[test]
    fn the_page_has_vllms_names_labels_and_number_format() {
        let mut metrics = EngineMetrics { prompt_tokens: 101_363, ..EngineMetrics::default() };
        metrics.time_to_first_token.record(0.03);
        metrics.finish(Finished::Length);
        let gauges = Gauges { running: 3, waiting: 1, kv_cache_usage: 0.25, ..Gauges::default() };
        let params = Profile::built_in("qwen3-8b-h100").unwrap().engine;
        let page = metrics.render(gauges, "qwen3-8b", &params);
        for line in [
            "vllm:num_requests_running{engine=\"0\",model_name=\"qwen3-8b\"} 3.0",
            "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"qwen3-8b\",reason=\"capacity\"} 1.0",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"qwen3-8b\"} 0.25",
            "vllm:prompt_tokens_total{engine=\"0\",model_name=\"qwen3-8b\"} 101363.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"qwen3-8b\",le=\"0.02\"} 0.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"qwen3-8b\",le=\"0.04\"} 1.0",
            "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"qwen3-8b\"} 1.0",
            "vllm:request_success_total{engine=\"0\",model_name=\"qwen3-8b\",finished_reason=\"length\"} 1.0",
            "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"23551\"} 1.0",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}\nnot in\n{page}");
        }
    }
}
