//! Clients' connections, closed when idle as vLLM closes them: a client that keeps one longer meets the end
//! of it here too.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};

use super::owner::until;

/// Longest time that a connection waits for its next request, real time: uvicorn's `timeout_keep_alive`,
/// which vLLM leaves as it is.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be taken: too many open files are the usual reason.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves connections until `stopped` turns true or its sender is gone, then lets answers under way end. A
/// connection without a request for `keep_alive` is closed.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    keep_alive: Duration,
    stopped: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(keep_alive);
    let mut connections = JoinSet::new();
    let mut end = std::pin::pin!(until(stopped.clone()));
    loop {
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // A token must not wait for the next one to fill its packet.
                    _ = stream.set_nodelay(true);
                    let service = TowerToHyperService::new(app.clone());
                    let served = builder.serve_connection(TokioIo::new(stream), service);
                    connections.spawn(until_stopped(served, stopped.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not taken");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Runs one connection. How it ends is the client's matter: whatever ran on it is then taken out.
async fn until_stopped(
    served: http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>>,
    stopped: watch::Receiver<bool>,
) {
    let mut served = std::pin::pin!(served);
    tokio::select! {
        _ = served.as_mut() => {}
        () = until(stopped) => {
            served.as_mut().graceful_shutdown();
            _ = served.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn an_idle_connection_is_closed_after_its_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(|| async { "here" }));
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(serve(listener, app, Duration::from_millis(500), stopped));
        let client = tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            // Ends only when the server closes: the request asked to keep the connection.
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let answer = client.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}
