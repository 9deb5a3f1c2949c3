//! Listens, and ends gracefully.

use std::{future::Future, sync::Arc, time::Duration};

use axum::serve::ListenerExt;
use tokio::{net::TcpListener, sync::oneshot};

use super::{Gateway, GatewayError, routes};

/// How long answers may go on after a shutdown was asked for.
const DRAIN: Duration = Duration::from_secs(30);

/// Serves clients until `shutdown` completes, then lets the answers under way end, for at most 30 s.
///
/// # Errors
/// [`GatewayError::Listener`] where the listener fails.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), GatewayError> {
    // Events are small and must not wait for more to come.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a client's connection takes no options");
        }
    });
    let (draining, drain_began) = oneshot::channel();
    let server = axum::serve(listener, routes::app(gateway)).with_graceful_shutdown(async move {
        shutdown.await;
        let _nobody_waits = draining.send(());
    });
    let overdue = async {
        if drain_began.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = server => Ok(ended?),
        () = overdue => {
            tracing::warn!(after_s = DRAIN.as_secs(), "answers still under way are cut off");
            Ok(())
        }
    }
}
