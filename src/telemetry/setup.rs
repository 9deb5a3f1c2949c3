//! Logs to standard error, traces to an OpenTelemetry collector, and the flush at the end of both.

use std::{io::IsTerminal, sync::Arc, time::Duration};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    propagation::TraceContextPropagator,
    trace::{SdkTracerProvider, SpanData},
};
use tokio::runtime::Handle;
use tracing::{Dispatch, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::filter_fn,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
};

use super::{LogFormat, TelemetryConfig, TelemetryError, lines::LineFields, without_secrets};

/// Longest that one export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest that the flush at the end may take: a collector that hangs must not hold up a shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// The name under which a collector files our spans.
const SERVICE: &str = "bear";

/// Keeps the trace exporter alive; what it still holds is sent by [`Guard::shutdown`], or on drop.
#[derive(Debug)]
#[must_use = "traces are flushed when the guard is shut down or dropped"]
pub struct Guard(Option<SdkTracerProvider>);

impl Guard {
    /// Sends what is left without blocking the runtime, for a few seconds at most.
    pub async fn shutdown(mut self) {
        if let Some(provider) = self.0.take() {
            // A failed flush means lost traces; nobody is left to be told but standard error.
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || flush(&provider)).await {
                eprintln!("warning: the last traces could not be sent: {error}");
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take()
            && let Err(error) = flush(&provider)
        {
            eprintln!("warning: the last traces could not be sent: {error}");
        }
    }
}

fn flush(provider: &SdkTracerProvider) -> OTelSdkResult {
    provider.shutdown_with_timeout(FLUSH_TIMEOUT)
}

/// Sets up the process's logs and traces; once a process.
///
/// With an OTLP endpoint it must be called inside a tokio runtime, which then carries the exports.
///
/// # Errors
/// A malformed filter or endpoint, or a process whose logs are already set up.
pub fn init(config: &TelemetryConfig) -> Result<Guard, TelemetryError> {
    let (dispatch, guard) = build(config, std::io::stderr, std::io::stderr().is_terminal())?;
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| TelemetryError::AlreadySetUp)?;
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    Ok(guard)
}

/// Builds logs into `writer` and traces as `config` says, without installing them.
///
/// # Errors
/// A malformed filter or endpoint; an endpoint outside a tokio runtime.
pub fn build<W>(
    config: &TelemetryConfig,
    writer: W,
    colour: bool,
) -> Result<(Dispatch, Guard), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter(config)?;
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.log_format {
        LogFormat::Text => fmt::layer().fmt_fields(LineFields).with_writer(writer).with_ansi(colour).boxed(),
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_current_span(false).with_writer(writer).boxed()
        }
    };
    let provider = config.otlp_endpoint.as_deref().map(provider).transpose()?;
    let traces = provider.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            // Only our own spans: those of the exporter's HTTP client would feed on themselves.
            .with_filter(filter_fn(|metadata| metadata.target().starts_with("bear") && metadata.is_span()))
    });
    let subscriber = Registry::default().with(lines.with_filter(filter)).with(traces);
    Ok((Dispatch::new(subscriber), Guard(provider)))
}

impl TelemetryConfig {
    /// Checks the filter and the endpoint's form without setting anything up.
    ///
    /// # Errors
    /// [`TelemetryError::Filter`], [`TelemetryError::Endpoint`].
    pub fn check(&self) -> Result<(), TelemetryError> {
        filter(self)?;
        self.otlp_endpoint.as_deref().map_or(Ok(()), plain_http)
    }
}

fn filter(config: &TelemetryConfig) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .with_default_directive(LevelFilter::ERROR.into())
        .parse(&config.log)
        .map_err(|source| TelemetryError::Filter { filter: config.log.clone(), source })
}

fn plain_http(endpoint: &str) -> Result<(), TelemetryError> {
    if endpoint.starts_with("http://") {
        return Ok(());
    }
    let why = String::from("it is to start with http:// (for TLS, put a collector beside the router)");
    Err(TelemetryError::Endpoint { endpoint: without_secrets(endpoint), why })
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
    let fault = |why: String| TelemetryError::Endpoint { endpoint: without_secrets(endpoint), why };
    plain_http(endpoint)?;
    let runtime = Handle::try_current().map_err(|error| fault(error.to_string()))?;
    let base = endpoint.trim_end_matches('/');
    let address = if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") };
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| fault(error.to_string()))?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(address)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| fault(error.to_string()))?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(OnRuntime { exporter: Arc::new(exporter), runtime })
        .with_resource(
            Resource::builder()
                .with_service_name(SERVICE)
                .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
                .build(),
        )
        .build())
}

/// Runs exports on the tokio runtime: the SDK polls them on a thread of its own, where the HTTP client
/// would find no reactor.
#[derive(Debug)]
struct OnRuntime {
    exporter: Arc<SpanExporter>,
    runtime: Handle,
}

impl opentelemetry_sdk::trace::SpanExporter for OnRuntime {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exporter = Arc::clone(&self.exporter);
        let sent = self.runtime.spawn(async move {
            opentelemetry_sdk::trace::SpanExporter::export(exporter.as_ref(), batch).await
        });
        sent.await.unwrap_or_else(|error| Err(OTelSdkError::InternalFailure(error.to_string())))
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        opentelemetry_sdk::trace::SpanExporter::shutdown_with_timeout(self.exporter.as_ref(), timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            opentelemetry_sdk::trace::SpanExporter::set_resource(exporter, resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Mutex, PoisonError},
    };

    use super::*;
    use crate::telemetry::names::{attribute, span};

    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
        }
    }

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(config: &TelemetryConfig) -> String {
        let lines = Lines::default();
        let sink = lines.clone();
        let (dispatch, _guard) = build(config, move || sink.clone(), false).unwrap();
        tracing::dispatcher::with_default(&dispatch, || {
            tracing::info!(instance = "a", "routed");
            tracing::debug!("hidden");
        });
        lines.text()
    }

    #[test]
    fn text_lines_carry_message_and_fields_at_the_level_asked() {
        let text = logged(&TelemetryConfig::default());
        assert!(
            text.contains("INFO") && text.contains("routed") && text.contains("instance=\"a\""),
            "{text}"
        );
        assert!(!text.contains("hidden"), "{text}");
        assert!(logged(&TelemetryConfig { log: "debug".into(), ..Default::default() }).contains("hidden"));
    }

    #[test]
    fn lines_within_a_request_carry_its_id_and_no_other_attribute() {
        let lines = Lines::default();
        let sink = lines.clone();
        let (dispatch, _guard) = build(&TelemetryConfig::default(), move || sink.clone(), false).unwrap();
        tracing::dispatcher::with_default(&dispatch, || {
            let span = tracing::info_span!(
                span::REQUEST,
                { attribute::REQUEST_ID } = "r1",
                { attribute::OPERATION } = "chat",
                { attribute::INSTANCE } = tracing::field::Empty,
            );
            span.record(attribute::INSTANCE, "a");
            span.in_scope(|| tracing::warn!("an attempt failed"));
        });
        let line = lines.text();
        assert!(line.contains(r#"bear.request{bear.request_id="r1"}: "#), "{line}");
        assert!(line.ends_with("an attempt failed\n"), "{line}");
    }

    #[test]
    fn json_lines_are_one_object_each() {
        let text = logged(&TelemetryConfig { log_format: LogFormat::Json, ..Default::default() });
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(line["message"], "routed");
        assert_eq!(line["instance"], "a");
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn a_bad_filter_and_a_bad_endpoint_are_named() {
        let config = TelemetryConfig { log: "bear=loud".into(), ..Default::default() };
        let error = build(&config, io::sink, false).unwrap_err();
        assert!(error.to_string().contains("bear=loud"), "{error}");
        let config = TelemetryConfig { otlp_endpoint: Some("collector:4317".into()), ..Default::default() };
        let error = build(&config, io::sink, false).unwrap_err();
        assert!(error.to_string().contains("collector:4317"), "{error}");
    }
}
