//! The pooled HTTP client, whose connections know whether they have carried a request before.
//!
//! A reused connection may have been closed by its server just as it is used; that is no failure of
//! the instance, and only such a request may be sent again at once.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Uri;
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connected, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;
use tower::Service;

use super::{GatewayError, UpstreamConfig};

/// The client that all attempts share.
pub(super) type Client = legacy::Client<Tracking, Full<Bytes>>;

/// Builds the client: HTTP/1.1, `http` and `https` with the web's roots.
pub(super) fn client(config: &UpstreamConfig) -> Result<Client, GatewayError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_millis(config.connect_timeout_ms.max(1))));
    let https =
        HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().wrap_connector(tcp);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(config.pool_idle()?)
        .build(Tracking(https)))
}

/// Whether a connection has carried an answer before.
#[derive(Clone, Debug, Default)]
pub(super) struct Used(Arc<AtomicBool>);

impl Used {
    /// Marks that it has.
    pub(super) fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has.
    pub(super) fn is_marked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Gives each connection its [`Used`] mark.
#[derive(Clone, Debug)]
pub(super) struct Tracking(HttpsConnector<HttpConnector>);

impl Service<Uri> for Tracking {
    type Response = Tracked;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Tracked, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move { Ok(Tracked { stream: connecting.await?, used: Used::default() }) })
    }
}

/// A connection with its [`Used`] mark.
pub(super) struct Tracked {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    used: Used,
}

impl Connection for Tracked {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.used.clone())
    }
}

impl Read for Tracked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Tracked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
