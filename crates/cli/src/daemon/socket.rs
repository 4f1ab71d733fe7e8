//! The daemon's socket: any number of clients, none of which can delay the loop or another one.
//!
//! Reading and writing never wait. A turn serves a bounded number of clients and takes a bounded number of
//! bytes of each; the rest is served in the next turns. A client that does not read what it asked for, or
//! sends a message without an end, is disconnected.

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use varlink::sansio::{Server, ServerEvent};
use varlink::{Reply, Request};

/// The clients served in a turn.
const SERVED_MAX: usize = 64;

/// The bytes taken of a client in a turn: more than any sensible request has.
const TAKEN_MAX: usize = 64 << 10;

/// The bytes that wait for a client to read them.
const UNSENT_MAX: usize = 8 << 20;

/// The clients at a time.
const CLIENTS_MAX: usize = 4096;

/// The listener's key in the set of descriptors; those of clients follow.
const LISTENER: u64 = 0;

/// The client that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Their user ID.
    pub uid: u32,
    /// The process that has connected; 0 if it is not of this PID namespace.
    pub pid: u32,
}

/// What is sent to a client from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Every state.
    States,
    /// What happens.
    Events,
}

/// An answer, and what is to follow.
pub struct Answer {
    pub reply: Reply,
    pub follows: Option<Follows>,
}

/// The socket.
pub struct Socket {
    listener: UnixListener,
    ready: Epoll,
    clients: HashMap<u64, Client>,
    last: u64,
    path: PathBuf,
    /// Only one daemon has it.
    _lock: Flock<File>,
}

struct Client {
    stream: UnixStream,
    peer: Peer,
    protocol: Server,
    /// Bytes since the last end of a message.
    unfinished: usize,
    unsent: Vec<u8>,
    follows: Option<Follows>,
}

impl Socket {
    /// Creates the socket. One that an earlier daemon has left is replaced.
    pub fn bind(path: &Path) -> Result<Socket> {
        let shown = path.display();
        let beside = path.with_extension("lock");
        let mut options = File::options();
        options.create(true).truncate(false).write(true).custom_flags(OFlag::O_NOFOLLOW.bits());
        let file = options.open(&beside);
        let file = file.with_context(|| format!("cannot create {}", beside.display()))?;
        let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
            bail!("another daemon has {shown}: `corewise status` asks it");
        };
        match std::fs::symlink_metadata(path) {
            Ok(left) if left.file_type().is_socket() => {
                std::fs::remove_file(path).with_context(|| format!("cannot replace {shown}"))?;
            }
            Ok(_) => bail!("{shown} is no socket: name another file"),
            // Whatever else is wrong, creating it tells.
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).with_context(|| format!("cannot create {shown}"))?;
        listener.set_nonblocking(true)?;
        // Everybody may ask; what they see follows from their user ID, which the kernel vouches for.
        std::fs::set_permissions(path, Permissions::from_mode(0o666))
            .with_context(|| format!("cannot open {shown} to others"))?;
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        ready.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let (clients, last) = (HashMap::new(), LISTENER);
        Ok(Socket { listener, ready, clients, last, path: path.to_owned(), _lock: lock })
    }

    /// Returns the number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns a descriptor that is readable while a client wants something.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.ready.0.as_fd().try_clone_to_owned()
    }

    /// Serves the clients that want something.
    pub fn take_turn(&mut self, mut answer: impl FnMut(&Request<'_>, Peer) -> Answer) {
        let mut events = [EpollEvent::empty(); SERVED_MAX];
        // Whatever fails for all is tried again in the next turn.
        let count = self.ready.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                LISTENER => self.welcome(),
                key => {
                    let Some(client) = self.clients.get_mut(&key) else { continue };
                    let stays = client.serve(event.events(), &mut answer);
                    self.settle(key, stays);
                }
            }
        }
    }

    /// Sends the clients that follow these what concerns them, if anything does.
    pub fn tell_followers(&mut self, of: Follows, mut reply: impl FnMut(Peer) -> Option<Reply>) {
        let following = self.clients.iter().filter(|(_, client)| client.follows == Some(of));
        for key in following.map(|(key, _)| *key).collect::<Vec<_>>() {
            let Some(client) = self.clients.get_mut(&key) else { continue };
            let Some(reply) = reply(client.peer) else { continue };
            let stays = client.tell(&reply);
            self.settle(key, stays);
        }
    }

    fn welcome(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let peer = getsockopt(&stream, PeerCredentials);
            let peer = peer.map(|peer| Peer { uid: peer.uid(), pid: peer.pid() as u32 });
            let (Ok(peer), Ok(())) = (peer, stream.set_nonblocking(true)) else { continue };
            if self.clients.len() == CLIENTS_MAX {
                let uid = peer.uid;
                log::warn!(corewise_event = "client_refused"; "too many clients: user {uid} is refused");
                continue;
            }
            self.last += 1;
            if self.ready.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, self.last)).is_ok() {
                let (protocol, unsent) = (Server::new(), Vec::new());
                let client = Client { stream, peer, protocol, unfinished: 0, unsent, follows: None };
                self.clients.insert(self.last, client);
            }
        }
    }

    /// Watches a client for what it waits for now, or lets it go.
    fn settle(&mut self, key: u64, stays: bool) {
        let Some(client) = self.clients.get(&key) else { return };
        let writes = if client.unsent.is_empty() { EpollFlags::empty() } else { EpollFlags::EPOLLOUT };
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN | writes, key);
        if !stays || self.ready.modify(&client.stream, &mut event).is_err() {
            // Closing it takes it out of the set.
            self.clients.remove(&key);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nobody else has it. If it is gone already, so much the better.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Client {
    /// Reads, answers and writes as far as that is possible at once. Returns whether the client stays.
    fn serve(&mut self, events: EpollFlags, answer: &mut impl FnMut(&Request<'_>, Peer) -> Answer) -> bool {
        if events.contains(EpollFlags::EPOLLOUT) && !self.send() {
            return false;
        }
        let mut bytes = [0; TAKEN_MAX];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        let bytes = &bytes[..count];
        let end = bytes.iter().rposition(|byte| *byte == 0);
        self.unfinished = end.map_or(self.unfinished + count, |end| count - end - 1);
        if self.unfinished > TAKEN_MAX || self.protocol.handle_input(bytes).is_err() {
            return false;
        }
        while let Some(event) = self.protocol.poll_event() {
            let ServerEvent::Request { request } = event else { return false };
            let Answer { reply, follows } = answer(&request, self.peer);
            self.follows = follows.or(self.follows);
            if request.oneway != Some(true) && !self.tell(&reply) {
                return false;
            }
        }
        true
    }

    /// Sends a reply, or keeps what the client does not take yet.
    fn tell(&mut self, reply: &Reply) -> bool {
        let Ok(bytes) = varlink::sansio::serialize_reply(reply) else { return false };
        self.unsent.extend(bytes);
        self.send() && self.unsent.len() <= UNSENT_MAX
    }

    fn send(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return false,
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) => {
                    return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::random::Random;
    use serde_json::json;
    use std::io::{BufRead, BufReader};

    /// Answers with as many letters as asked for.
    fn letters(request: &Request<'_>, _peer: Peer) -> Answer {
        let count = request.parameters.as_ref().and_then(|all| all["count"].as_u64()).unwrap_or(1);
        let parameters = json!({"letters": "x".repeat(count as usize)});
        let follows = (request.more == Some(true)).then_some(Follows::States);
        Answer { reply: Reply::parameters(Some(parameters)), follows }
    }

    fn socket() -> (tempfile::TempDir, Socket) {
        let directory = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&directory.path().join("socket")).unwrap();
        (directory, socket)
    }

    fn connect(socket: &Socket) -> UnixStream {
        let stream = UnixStream::connect(&socket.path).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Takes turns until the client has a whole message, or is disconnected.
    fn message(socket: &mut Socket, client: &UnixStream) -> Option<String> {
        let (mut message, mut reader) = (Vec::new(), BufReader::new(client));
        loop {
            match reader.read_until(0, &mut message) {
                Ok(_) if message.pop() == Some(0) => return String::from_utf8(message).ok(),
                Ok(_) => return None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.take_turn(letters),
                Err(_) => return None,
            }
        }
    }

    const ASK: &[u8] = b"{\"method\":\"a.b\"}\0";
    const ANSWER: &str = r#"{"parameters":{"letters":"x"}}"#;

    #[test]
    fn a_thousand_clients_are_answered() {
        let (_directory, mut socket) = socket();
        // As many as there may be descriptors for, at both ends.
        let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap().0;
        let count = (limit as usize / 2).saturating_sub(50).min(1000);
        let mut clients: Vec<UnixStream> = Vec::new();
        for _ in 0..count {
            clients.push(connect(&socket));
            socket.take_turn(letters);
        }
        clients.iter_mut().for_each(|client| client.write_all(ASK).unwrap());
        for client in &clients {
            assert_eq!(message(&mut socket, client).as_deref(), Some(ANSWER));
        }
        drop(clients);
        let last = connect(&socket);
        while socket.clients.len() != 1 {
            socket.take_turn(letters);
        }
        drop(last);
    }

    #[test]
    fn a_client_that_never_reads_is_disconnected_and_holds_nobody_up() {
        let (_directory, mut socket) = socket();
        let (mut silent, mut other) = (connect(&socket), connect(&socket));
        silent.write_all(b"{\"method\":\"a.b\",\"more\":true,\"parameters\":{\"count\":1000000}}\0").unwrap();
        while !socket.clients.values().any(|client| client.follows.is_some()) {
            socket.take_turn(letters);
        }
        let state = |_| Some(Reply::parameters(Some(json!({"letters": "x".repeat(1_000_000)}))));
        while socket.clients.len() == 2 {
            socket.tell_followers(Follows::States, state);
            other.write_all(ASK).unwrap();
            assert_eq!(message(&mut socket, &other).as_deref(), Some(ANSWER));
        }
        assert!(socket.clients.values().all(|client| client.follows.is_none()));
    }

    #[test]
    fn messages_without_sense_or_end_are_no_danger() {
        let (_directory, mut socket) = socket();
        let mut chance = Random::new(1, 0);
        let mut good = connect(&socket);
        for _ in 0..10_000 {
            let mut bytes: Vec<u8> = [ASK, b"{\"method\":1}\0", b"[]\0", b"{\"a\":{\"b\":[\0"].concat();
            let by = chance.below(bytes.len());
            bytes.rotate_left(by);
            for _ in 0..chance.below(5) {
                let at = chance.below(bytes.len());
                bytes[at] = chance.below(256) as u8;
            }
            let mut client = connect(&socket);
            socket.take_turn(letters);
            // It may have been disconnected already.
            let _ = client.write_all(&bytes);
            socket.take_turn(letters);
        }
        let mut endless = connect(&socket);
        while endless.write_all(&[b'x'; 1000]).is_ok() {
            socket.take_turn(letters);
        }
        good.write_all(ASK).unwrap();
        assert_eq!(message(&mut socket, &good).as_deref(), Some(ANSWER));
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("letter.txt");
        std::fs::write(&path, "dear").unwrap();
        let refusal = Socket::bind(&path).err().unwrap().to_string();
        assert!(refusal.contains("is no socket"), "{refusal}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear");
    }

    #[test]
    fn only_one_daemon_has_a_socket_and_a_left_one_is_replaced() {
        let (directory, socket) = socket();
        let path = directory.path().join("socket");
        let refusal = Socket::bind(&path).err().unwrap().to_string();
        assert!(refusal.contains("another daemon has"), "{refusal}");
        drop(socket);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        Socket::bind(&path).unwrap();
    }
}
