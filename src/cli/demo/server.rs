//! The demo's router from outside: its port, and the questions a client asks it.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};

use super::{advice, client, traffic::Ask};
use crate::domain::Decision;

/// Longest wait for the router to know its instances.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Listens on the router's port, or says plainly why not.
pub(super) async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => bail!(advice::other_port(port)),
        Err(error) => Err(error).with_context(|| format!("cannot listen on port {port}")),
    }
}

/// The router as a client sees it.
#[derive(Clone)]
pub(super) struct Server {
    /// Where it listens, as a URL.
    pub(super) url: String,
    /// The connections to it.
    pub(super) client: reqwest::Client,
}

impl Server {
    /// Prepares connections to a router on this machine; no proxy has a part in them.
    pub(super) fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { url: format!("http://{address}"), client })
    }

    /// Waits until the router has a usable instance.
    pub(super) async fn ready(&self) -> anyhow::Result<()> {
        let ready = async {
            while !self.get("/ready").await {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(READY_WITHIN, ready).await.context("the router never became ready")
    }

    async fn get(&self, path: &str) -> bool {
        let response = self.client.get(format!("{}{path}", self.url)).send().await;
        response.is_ok_and(|response| response.status().is_success())
    }

    /// Returns the decision that the router would take on a request now.
    pub(super) async fn dry_run(&self, ask: &Ask) -> Option<Decision> {
        let request = self
            .client
            .post(format!("{}/v1/route", self.url))
            .header("x-slo-ttft-ms", format!("{:.0}", ask.ttft_target_ms))
            .json(&client::body(ask));
        request.send().await.ok()?.error_for_status().ok()?.json().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_said_with_what_to_do() {
        let taken = listen(0).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listen(port).await.unwrap_err().to_string();
        assert!(error.contains(&port.to_string()) && error.contains("--port"), "{error}");
    }
}
