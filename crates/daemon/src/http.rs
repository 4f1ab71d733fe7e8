//! HTTP for programs that scrape metrics: the least of it that they need.
//!
//! As at the daemon's socket, reading and writing never wait, and a round does a bounded amount of work. A
//! connection brings one request of bounded size and gets one answer. There is a bounded number of
//! connections; the newest one takes the place of the oldest, so that clients which never write or never read
//! keep nobody out.
//!
//! By hand, as libraries lack these bounds. `tiny_http` has a thread for each connection, without an end
//! (*measured*: 300 clients that send nothing are 300 threads), and takes a header field of any size into
//! memory (64 MiB). `hyper` bounds the request, but not the connections, and does not say which of reading
//! and writing it waits for: with a small executor for this loop it is no shorter, for seven more crates.
//!
//! Limits. No TLS and no password: every client that reaches the address may read. One answer per connection.

use crate::error::ServeError;
use crate::exposition::Format;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

/// The connections at a time, and those accepted in a round.
const CONNECTIONS_MAX: usize = 16;

/// The bytes of a request; those of scrapers have some hundred.
const REQUEST_MAX: usize = 8 << 10;

/// Where metrics are.
pub const PATH: &str = "/metrics";

/// The listener's key in the set of descriptors; those of connections follow.
const LISTENER: u64 = 0;

/// The server.
pub struct Http {
    listener: TcpListener,
    ready: Epoll,
    /// The oldest first.
    connections: BTreeMap<u64, Connection>,
    last: u64,
    /// How many requests got which status.
    pub answered: BTreeMap<&'static str, u64>,
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    unsent: Vec<u8>,
}

/// A page, and its media type.
pub type Page = (String, &'static str);

/// The format that a request is answered in: the one that its header fields accept, or else the older one,
/// which everything that reads metrics knows (`curl`, `promtool check metrics`).
fn accepted(request: &[u8]) -> Format {
    let request = String::from_utf8_lossy(request).to_ascii_lowercase();
    let mut accepted = request.split("\r\n").filter_map(|line| line.strip_prefix("accept:"));
    let is_open = accepted.any(|types| types.contains("application/openmetrics-text"));
    if is_open { Format::OpenMetrics } else { Format::Prometheus }
}

impl Http {
    /// Listens at the address.
    pub fn bind(address: SocketAddr) -> Result<Http, ServeError> {
        let listener =
            TcpListener::bind(address).map_err(|source| ServeError::Address { address, source })?;
        listener.set_nonblocking(true)?;
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        ready.add(&listener, newcomers())?;
        let (connections, answered) = (BTreeMap::new(), BTreeMap::new());
        Ok(Http { listener, ready, connections, last: LISTENER, answered })
    }

    /// Returns where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a descriptor that is readable while a client wants something.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.ready.0.as_fd().try_clone_to_owned()
    }

    /// Serves the clients that want something; `page` makes the metrics.
    pub fn serve(&mut self, mut page: impl FnMut(Format) -> Page) {
        let mut events = [EpollEvent::empty(); CONNECTIONS_MAX + 1];
        let count = self.ready.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            let key = event.data();
            if key == LISTENER {
                self.welcome();
                continue;
            }
            let Some(connection) = self.connections.get_mut(&key) else { continue };
            let stays = connection.serve(&mut page, &mut self.answered);
            let wants = if connection.unsent.is_empty() { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLOUT };
            let mut event = EpollEvent::new(wants, key);
            if !stays || self.ready.modify(&connection.stream, &mut event).is_err() {
                // Closing it takes it out of the set.
                self.connections.remove(&key);
            }
        }
    }

    fn welcome(&mut self) {
        for _ in 0..CONNECTIONS_MAX {
            // Whatever else is wrong, such as too few descriptors, is tried again when another one comes.
            let Ok((stream, _)) = self.listener.accept() else { return };
            if self.connections.len() == CONNECTIONS_MAX {
                self.connections.pop_first();
            }
            self.last += 1;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, self.last);
            if stream.set_nonblocking(true).is_ok() && self.ready.add(&stream, event).is_ok() {
                let connection = Connection { stream, request: Vec::new(), unsent: Vec::new() };
                self.connections.insert(self.last, connection);
            }
        }
        // There may be more: have epoll report them again. If that fails, it does so with the next one.
        let _ = self.ready.modify(&self.listener, &mut newcomers());
    }
}

/// Edge-triggered: a connection that cannot be accepted must not wake the loop all the time.
fn newcomers() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, LISTENER)
}

impl Connection {
    /// Reads, answers and writes as far as that is possible at once. Returns whether there is more to do.
    fn serve(
        &mut self,
        page: impl FnMut(Format) -> Page,
        answered: &mut BTreeMap<&'static str, u64>,
    ) -> bool {
        let waits =
            |error: std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        if self.unsent.is_empty() {
            let mut bytes = [0; REQUEST_MAX];
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.request.extend(&bytes[..count]),
                Err(error) => return waits(error),
            }
            let is_whole = self.request.windows(4).any(|bytes| bytes == b"\r\n\r\n");
            if !is_whole && self.request.len() < REQUEST_MAX {
                return true;
            }
            let status;
            (status, self.unsent) = answer(&self.request, is_whole, page);
            *answered.entry(&status[..3]).or_default() += 1;
        }
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return false,
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) => return waits(error),
            }
        }
        false
    }
}

/// Returns the status and the whole answer.
fn answer(request: &[u8], is_whole: bool, mut page: impl FnMut(Format) -> Page) -> (&'static str, Vec<u8>) {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&str> = str::from_utf8(line).unwrap_or_default().split(' ').collect();
    let plain = |text: &str| (text.to_owned(), "text/plain; charset=utf-8");
    let (status, (body, media_type)) = match words[..] {
        _ if !is_whole => ("431 Request Header Fields Too Large", plain("the request is too long\n")),
        [method, target, version] if version.starts_with("HTTP/1.") => {
            match (method, target.split('?').next()) {
                ("GET", Some(PATH)) => ("200 OK", page(accepted(request))),
                ("GET", _) => ("404 Not Found", plain("metrics are at /metrics\n")),
                _ => ("405 Method Not Allowed", plain("only GET is understood\n")),
            }
        }
        _ => ("400 Bad Request", plain("this is no request of HTTP/1.1\n")),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\
         Allow: GET\r\nConnection: close\r\n\r\n"
    );
    (status, (head + &body).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> (Http, SocketAddr) {
        let server = Http::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap();
        (server, address)
    }

    /// As large as no buffer of the kernel.
    fn large_page(_: Format) -> Page {
        ("x".repeat(16 << 20), "text/plain")
    }

    fn page(_: Format) -> Page {
        ("a 1\n".to_owned(), "text/plain")
    }

    #[test]
    fn a_request_is_answered_in_the_format_that_it_accepts() {
        let of = |fields: &str| accepted(format!("GET /metrics HTTP/1.1\r\n{fields}\r\n").as_bytes());
        assert_eq!(of("Host: a\r\n"), Format::Prometheus);
        assert_eq!(of("Accept: */*\r\n"), Format::Prometheus);
        assert_eq!(of("Accept: text/plain;version=0.0.4\r\n"), Format::Prometheus);
        let prometheus = "ACCEPT: application/OpenMetrics-Text;version=1.0.0;q=0.5,text/plain;q=0.2\r\n";
        assert_eq!(of(prometheus), Format::OpenMetrics);
        assert_eq!(of("User-Agent: application/openmetrics-text\r\n"), Format::Prometheus);
    }

    fn send(address: SocketAddr, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Serves until the client has been answered, or disconnected.
    fn answer_to(server: &mut Http, mut client: TcpStream) -> String {
        let mut answer = Vec::new();
        loop {
            match client.read_to_end(&mut answer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => server.serve(page),
                _ => return String::from_utf8(answer).unwrap(),
            }
        }
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn a_request_gets_the_page_or_the_error_that_http_has_for_it() {
        let (mut server, address) = server();
        let mut status = |request: &[u8]| {
            let client = send(address, request);
            let answer = answer_to(&mut server, client);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
            (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
        };
        assert_eq!(status(GET), ("200".to_owned(), "a 1\n".to_owned()));
        assert_eq!(status(b"GET /metrics?a=b HTTP/1.0\r\n\r\n").0, "200");
        assert_eq!(status(b"GET /other HTTP/1.1\r\n\r\n").0, "404");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n").0, "405");
        assert_eq!(status(b"GET /metrics\r\n\r\n").0, "400");
        assert_eq!(status(b"\xff\xfe \0\r\n\r\n").0, "400");
        assert_eq!(status(&[b'x'; REQUEST_MAX]).0, "431");
        assert_eq!(server.answered["200"], 2);
    }

    #[test]
    fn a_request_may_come_in_pieces_and_a_client_may_leave() {
        let (mut server, address) = server();
        let mut client = send(address, b"GET /met");
        drop(send(address, b"GET"));
        while server.connections.values().all(|connection| connection.request.is_empty()) {
            server.serve(page);
        }
        client.write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
        assert!(answer_to(&mut server, client).ends_with("a 1\n"));
        while !server.connections.is_empty() {
            server.serve(page);
        }
    }

    #[test]
    fn clients_that_never_read_or_never_write_keep_nobody_out() {
        let (mut server, address) = server();
        let mut silent = Vec::new();
        for number in 0..2 * CONNECTIONS_MAX {
            let request: &[u8] = if number % 2 == 0 { GET } else { b"" };
            silent.push(send(address, request));
            server.serve(large_page);
            server.serve(large_page);
        }
        let client = send(address, GET);
        assert!(answer_to(&mut server, client).ends_with("a 1\n"));
        assert!(server.connections.len() < CONNECTIONS_MAX);
        // When the kernel's buffers are full, nothing wakes the loop for them any more.
        let mut events = [EpollEvent::empty(); 1];
        while server.ready.wait(&mut events, EpollTimeout::ZERO) != Ok(0) {
            server.serve(large_page);
        }
        drop(silent);
    }
}
