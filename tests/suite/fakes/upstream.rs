//! Scripted inference servers: they record requests byte for byte and answer as told, to the byte.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A request as an upstream got it.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Which upstream.
    pub(crate) instance: usize,
    /// The request line.
    pub(crate) line: String,
    /// Names in lower case, in order.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    /// Returns the first header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// One step of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Write and flush these bytes.
    Send(Vec<u8>),
    /// Close the connection.
    HangUp,
    /// Say nothing until the client closes.
    Silence,
    /// Say nothing for this long.
    Pause(Duration),
    /// Write these bytes again and again until the client closes.
    Flood(Vec<u8>),
}

/// What an upstream answers to one request.
pub(crate) type Script = Vec<Step>;

/// Returns a chunk of the chunked transfer coding.
pub(crate) fn chunk(data: &[u8]) -> Step {
    let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\r\n");
    Step::Send(bytes)
}

/// Several upstreams that share one queue of scripts, taken in the order of the requests.
#[derive(Clone)]
pub(crate) struct Upstreams {
    shared: Arc<Shared>,
    pub(crate) urls: Vec<String>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Recorded>>,
    scripts: Mutex<VecDeque<Script>>,
    /// What is answered when no script is left.
    fallback: Mutex<Script>,
    /// Connections that the client closed in the middle of an answer.
    hang_ups: AtomicUsize,
    /// The answer to `/tokenize`; none: 404.
    token_count: Mutex<Option<u32>>,
}

impl Upstreams {
    /// Starts `count` upstreams.
    pub(crate) async fn start(count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let mut urls = Vec::new();
        for instance in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            urls.push(format!("http://{}", listener.local_addr().unwrap()));
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                while let Ok((connection, _)) = listener.accept().await {
                    tokio::spawn(converse(connection, instance, Arc::clone(&shared)));
                }
            });
        }
        let upstreams = Self { shared, urls };
        upstreams.otherwise(Self::json(200, r#"{"id":"x","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#));
        upstreams
    }

    /// Queues the answer to the next request.
    pub(crate) fn next(&self, script: Script) -> &Self {
        self.shared.scripts.lock().unwrap().push_back(script);
        self
    }

    /// Sets the answer when no script is queued.
    pub(crate) fn otherwise(&self, script: Script) {
        *self.shared.fallback.lock().unwrap() = script;
    }

    /// Sets what `/tokenize` counts.
    pub(crate) fn count_tokens(&self, count: u32) {
        *self.shared.token_count.lock().unwrap() = Some(count);
    }

    /// Returns the requests so far, `/tokenize` apart.
    pub(crate) fn received(&self) -> Vec<Recorded> {
        let received = self.shared.received.lock().unwrap();
        received.iter().filter(|request| !request.line.contains("/tokenize")).cloned().collect()
    }

    /// Returns the `/tokenize` requests so far.
    pub(crate) fn tokenized(&self) -> usize {
        let received = self.shared.received.lock().unwrap();
        received.iter().filter(|request| request.line.contains("/tokenize")).count()
    }

    /// Returns how many answers the client left in the middle.
    pub(crate) fn hang_ups(&self) -> usize {
        self.shared.hang_ups.load(Ordering::SeqCst)
    }

    /// Answers a document with its length.
    pub(crate) fn json(status: u16, body: &str) -> Script {
        vec![Step::Send(
            format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nx-upstream: yes\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes(),
        )]
    }

    /// Opens an event stream, chunked.
    pub(crate) fn sse_head() -> Step {
        Step::Send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
                .to_vec(),
        )
    }

    /// Answers an event stream, a chunk a piece, ended cleanly.
    pub(crate) fn sse(pieces: &[&[u8]]) -> Script {
        let mut script = vec![Self::sse_head()];
        script.extend(pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| chunk(piece)));
        script.push(Step::Send(b"0\r\n\r\n".to_vec()));
        script
    }
}

async fn converse(mut connection: TcpStream, instance: usize, shared: Arc<Shared>) {
    let _option = connection.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut connection, &mut buffer, instance).await {
        let tokenize = request.line.contains("/tokenize");
        shared.received.lock().unwrap().push(request);
        let script = if tokenize {
            match *shared.token_count.lock().unwrap() {
                Some(count) => {
                    Upstreams::json(200, &format!(r#"{{"count":{count},"max_model_len":9,"tokens":[1]}}"#))
                }
                None => Upstreams::json(404, "{}"),
            }
        } else {
            let queued = shared.scripts.lock().unwrap().pop_front();
            queued.unwrap_or_else(|| shared.fallback.lock().unwrap().clone())
        };
        for step in script {
            let left = match step {
                Step::Send(bytes) => connection.write_all(&bytes).await.is_err(),
                Step::HangUp => return,
                Step::Pause(pause) => {
                    tokio::time::sleep(pause).await;
                    false
                }
                Step::Flood(bytes) => {
                    while connection.write_all(&bytes).await.is_ok() {}
                    true
                }
                Step::Silence => {
                    let mut rest = [0; 64];
                    while connection.read(&mut rest).await.is_ok_and(|n| n > 0) {}
                    true
                }
            };
            if left {
                shared.hang_ups.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

async fn read_request(connection: &mut TcpStream, buffer: &mut Vec<u8>, instance: usize) -> Option<Recorded> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        read_more(connection, buffer).await?;
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < head_end + length {
        read_more(connection, buffer).await?;
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    Some(Recorded { instance, line, headers, body })
}

async fn read_more(connection: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let read = connection.read_buf(buffer).await.ok()?;
    (read > 0).then_some(())
}

/// Waits until `true_yet` holds; fails after 20 s.
pub(crate) async fn eventually(what: &str, mut true_yet: impl FnMut() -> bool) {
    for _ in 0..4000 {
        if true_yet() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}
