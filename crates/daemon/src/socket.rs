//! The daemon's socket: any number of clients, none of which can delay the loop or another one.
//!
//! Reading and writing never wait. A round serves a bounded number of clients, and answers a bounded number
//! of requests of each; the rest is answered in the next rounds, before more is read. A client that does
//! not read what it asked for, or sends a message without an end, is disconnected. What users ask for has a
//! [`Budget`].
//!
//! There are a bounded number of places, and of bytes that wait. Where clients want more, the user who has
//! the most loses some: so a newcomer finds a place whatever the others do. Root and the daemon's own user
//! lose none to anybody else.
//!
//! Limit: a user is a user ID, and one person may have thousands of these (subuid(5)), none of which has more
//! than another user. Then those who send nothing are disconnected first.

use crate::budget::Budget;
use crate::error::ServeError;
use crate::refusals::Refusals;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use varlink::sansio::{Server, ServerEvent};
use varlink::{Reply, Request};

/// The clients served in a round.
const SERVED_MAX: usize = 64;

/// The bytes taken of a client in a round: more than any sensible request has.
const TAKEN_MAX: usize = 64 << 10;

/// The requests of a client that are answered in a round: some read much of `/proc`.
const ANSWERED_MAX: usize = 4;

/// The bytes that wait for a client to read them.
const UNSENT_MAX: usize = 8 << 20;

/// The bytes that wait of all clients together: for them to read, or for the end of their message.
const WAITING_MAX: usize = 128 << 20;

/// The clients at a time; at most this, and no more than a quarter of the descriptors.
const CLIENTS_MAX: usize = 4096;

/// How long newcomers wait once a user connects whose requests have to wait: to connect costs us time, too.
const ARRIVALS_PAUSE: Duration = Duration::from_millis(20);

/// The clients of one user at a time, unless that is root or the daemon's own user.
const OF_USER_MAX: usize = 64;

/// The listener's key in the set of descriptors; those of clients follow.
const LISTENER: u64 = 0;

/// Clients that connect. Only a new one is news: one that cannot be taken in yet would keep the loop awake.
const ARRIVALS: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);

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
    clients_max: usize,
    /// The clients whose requests wait until their user's budget permits more.
    delayed: BTreeSet<u64>,
    /// When clients are taken in again, if not now.
    arrivals_from: Option<Instant>,
    last: u64,
    refusals: Refusals,
    path: PathBuf,
    /// Only one daemon has it.
    _lock: Flock<File>,
}

struct Client {
    stream: UnixStream,
    peer: Peer,
    is_trusted: bool,
    /// When it came, or last sent something.
    sent: Instant,
    protocol: Server,
    /// Bytes since the last end of a message.
    unfinished: usize,
    /// Whether requests that were read may wait for their answer.
    is_waiting: bool,
    unsent: Vec<u8>,
    follows: Option<Follows>,
}

impl Socket {
    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the socket. One that an earlier daemon has left is replaced.
    pub fn bind(path: &Path) -> Result<Socket, ServeError> {
        let at = || path.to_owned();
        let mut beside = path.as_os_str().to_owned();
        // Beside the whole name: `a.x` and `a.y` are two sockets.
        beside.push(".lock");
        let beside = PathBuf::from(beside);
        let file = lock_file(&beside).map_err(|source| ServeError::Create { path: beside, source })?;
        let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
            return Err(ServeError::Taken { path: at() });
        };
        match std::fs::symlink_metadata(path) {
            Ok(left) if left.file_type().is_socket() => {
                std::fs::remove_file(path).map_err(|source| ServeError::Replace { path: at(), source })?;
            }
            Ok(_) => return Err(ServeError::NoSocket { path: at() }),
            // Whatever else is wrong, creating it tells.
            Err(_) => {}
        }
        let listener =
            UnixListener::bind(path).map_err(|source| ServeError::Create { path: at(), source })?;
        listener.set_nonblocking(true)?;
        // Everybody may ask; what they see follows from their user ID, which the kernel vouches for.
        std::fs::set_permissions(path, Permissions::from_mode(0o666))
            .map_err(|source| ServeError::Open { path: at(), source })?;
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        ready.add(&listener, EpollEvent::new(ARRIVALS, LISTENER))?;
        let (path, (soft, _)) = (path.to_owned(), getrlimit(Resource::RLIMIT_NOFILE)?);
        let clients_max = CLIENTS_MAX.min(soft as usize / 4);
        let (clients, refusals, last) = (HashMap::new(), Refusals::default(), LISTENER);
        let (delayed, arrivals_from) = (BTreeSet::new(), None);
        Ok(Socket {
            listener,
            ready,
            clients,
            clients_max,
            delayed,
            arrivals_from,
            last,
            refusals,
            path,
            _lock: lock,
        })
    }

    /// Returns the number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns a descriptor that is readable while a client wants something.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.ready.0.as_fd().try_clone_to_owned()
    }

    /// Returns the time within which clients and requests that were delayed are served.
    pub fn due_within(&self, budget: &Budget) -> Option<Duration> {
        let now = Instant::now();
        let delayed = self.delayed.iter().filter_map(|key| self.clients.get(key));
        let requests = delayed.map(|client| budget.wait(Some(client.peer.uid), now));
        let arrivals = self.arrivals_from.map(|from| from.saturating_duration_since(now));
        requests.chain(arrivals).min()
    }

    /// Serves the clients that want something, as far as their users' budgets permit.
    pub fn serve(&mut self, budget: &mut Budget, mut answer: impl FnMut(&Request<'_>, Peer) -> Answer) {
        self.resume(budget);
        let mut events = [EpollEvent::empty(); SERVED_MAX];
        // Whatever fails for all is tried again in the next round.
        let count = self.ready.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                LISTENER => self.welcome(budget),
                key => {
                    let Some(client) = self.clients.get_mut(&key) else { continue };
                    let (user, events) = (Some(client.peer.uid), event.events());
                    let must_wait = !budget.wait(user, Instant::now()).is_zero();
                    // The kernel reports an end whether one waits for it or not.
                    let has_left = events.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
                    if must_wait && !has_left {
                        self.delayed.insert(key);
                    }
                    let stays = match must_wait {
                        true => !has_left,
                        false => budget.pay(user, || client.serve(events, &mut answer)),
                    };
                    self.settle(key, stays);
                }
            }
        }
    }

    /// Sends the clients that follow these what concerns them, if anything does. Those whose users' budgets
    /// are exhausted miss a state, as the next one replaces it, but no event.
    pub fn tell_followers(
        &mut self,
        budget: &mut Budget,
        of: Follows,
        mut reply: impl FnMut(Peer) -> Option<Reply>,
    ) {
        let following = self.clients.iter().filter(|(_, client)| client.follows == Some(of));
        for key in following.map(|(key, _)| *key).collect::<Vec<_>>() {
            let Some(client) = self.clients.get_mut(&key) else { continue };
            let user = Some(client.peer.uid);
            if of == Follows::States && !budget.wait(user, Instant::now()).is_zero() {
                continue;
            }
            let stays = budget.pay(user, || Some(client.tell(&reply(client.peer)?)));
            if let Some(stays) = stays {
                self.settle(key, stays);
            }
        }
    }

    /// Watches delayed clients again whose users' budgets permit more, and newcomers.
    fn resume(&mut self, budget: &Budget) {
        let now = Instant::now();
        if self.arrivals_from.is_some_and(|from| from <= now) {
            self.arrivals_from = None;
            self.await_arrivals();
        }
        let user = |key: &u64| self.clients.get(key).map(|client| client.peer.uid);
        let delayed = self.delayed.iter().copied();
        let mut due: Vec<u64> = delayed.filter(|key| budget.wait(user(key), now).is_zero()).collect();
        // What all users have together may suffice for few of them.
        due.sort_by_key(|key| budget.last_answer(user(key)));
        for key in due.into_iter().take(SERVED_MAX) {
            self.delayed.remove(&key);
            self.settle(key, true);
        }
    }

    /// Takes in clients that have connected. Without a free descriptor they wait until a client leaves.
    fn welcome(&mut self, budget: &mut Budget) {
        let mut must_wait = false;
        for _ in 0..SERVED_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            let peer = getsockopt(&stream, PeerCredentials);
            let peer = peer.map(|peer| Peer { uid: peer.uid(), pid: peer.pid() as u32 });
            let (Ok(peer), Ok(())) = (peer, stream.set_nonblocking(true)) else { continue };
            let (user, is_trusted) = (Some(peer.uid), budget.is_trusted(Some(peer.uid)));
            budget.pay(user, || self.take_in(Client::new(stream, peer, is_trusted)));
            must_wait |= !budget.wait(user, Instant::now()).is_zero();
        }
        self.arrivals_from = must_wait.then(|| Instant::now() + ARRIVALS_PAUSE);
        self.await_arrivals();
    }

    fn take_in(&mut self, client: Client) {
        self.last += 1;
        if self.ready.add(&client.stream, EpollEvent::new(EpollFlags::EPOLLIN, self.last)).is_err() {
            return;
        }
        let (uid, is_trusted) = (client.peer.uid, client.is_trusted);
        self.clients.insert(self.last, client);
        let of_user = |client: &Client| usize::from(client.peer.uid == uid);
        if !is_trusted && self.clients.values().map(of_user).sum::<usize>() > OF_USER_MAX {
            self.make_room(of_user, "too many clients");
        } else if self.clients.len() > self.clients_max {
            self.make_room(|_| 1, "too many clients");
        }
    }

    /// Has the set of descriptors say again whether a client has connected, unless newcomers wait.
    fn await_arrivals(&self) {
        let interest = if self.arrivals_from.is_some() { EpollFlags::empty() } else { ARRIVALS };
        // The listener is in the set.
        let _ = self.ready.modify(&self.listener, &mut EpollEvent::new(interest, LISTENER));
    }

    /// Lets a client go of the user of whose clients there is the most of something. Among equal ones it is
    /// one that follows nothing, the one that has sent nothing for the longest time. Trusted users lose one
    /// only to each other. Returns whether there was any.
    fn make_room(&mut self, amount: impl Fn(&Client) -> usize, why: &str) -> bool {
        let mut of_user: HashMap<u32, usize> = HashMap::new();
        for client in self.clients.values() {
            *of_user.entry(client.peer.uid).or_default() += amount(client);
        }
        let order = |(_, client): &(&u64, &Client)| {
            let most = (of_user[&client.peer.uid], amount(client));
            (!client.is_trusted, most, client.follows.is_none(), Reverse(client.sent))
        };
        let some = self.clients.iter().filter(|(_, client)| amount(client) > 0);
        let Some((&key, client)) = some.max_by_key(order) else { return false };
        let uid = client.peer.uid;
        self.refusals.log(uid, format_args!("{why}: one of user {uid} is disconnected"));
        self.close(key);
        true
    }

    /// Watches a client for what it waits for now, or lets it go.
    fn settle(&mut self, key: u64, stays: bool) {
        let Some(client) = self.clients.get(&key) else { return };
        let is_delayed = self.delayed.contains(&key);
        let waits_for = if is_delayed { EpollFlags::empty() } else { client.waits_for() };
        let mut event = EpollEvent::new(waits_for, key);
        if !stays || self.ready.modify(&client.stream, &mut event).is_err() {
            return self.close(key);
        }
        let may_exceed = client.waiting() > 0;
        let exceeds = |all: &Socket| all.clients.values().map(Client::waiting).sum::<usize>() > WAITING_MAX;
        while may_exceed && exceeds(self) && self.make_room(Client::waiting, "too much waits for clients") {}
    }

    fn close(&mut self, key: u64) {
        // That takes it out of the set of descriptors.
        self.clients.remove(&key);
        self.delayed.remove(&key);
        self.await_arrivals();
    }
}

/// Opens the file that is locked. Nobody but us may open it, with any umask, and if an earlier version left
/// it: to lock a file it is enough to read it.
fn lock_file(path: &Path) -> std::io::Result<File> {
    const OURS: u32 = 0o600;
    let mut options = File::options();
    // A FIFO there delays nothing.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    options.create(true).truncate(false).write(true).mode(OURS).custom_flags(flags.bits());
    let file = options.open(path)?;
    let found = file.metadata()?;
    // Also not by a second name, in a folder where others make files: its rights change below.
    if !found.is_file() || found.uid() != geteuid().as_raw() || found.nlink() != 1 {
        return Err(std::io::Error::new(ErrorKind::AlreadyExists, "another user has made what is there"));
    }
    file.set_permissions(Permissions::from_mode(OURS))?;
    Ok(file)
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nobody else has it. If it is gone already, so much the better.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Client {
    fn new(stream: UnixStream, peer: Peer, is_trusted: bool) -> Client {
        let (protocol, unsent, sent) = (Server::new(), Vec::new(), Instant::now());
        Client {
            stream,
            peer,
            is_trusted,
            sent,
            protocol,
            unfinished: 0,
            is_waiting: false,
            unsent,
            follows: None,
        }
    }

    /// Returns the bytes that wait, for it to read or for the end of its message.
    fn waiting(&self) -> usize {
        self.unsent.len() + self.unfinished
    }

    /// Returns when it is to be served next. One with a request left is served although it sends nothing.
    fn waits_for(&self) -> EpollFlags {
        match (self.is_waiting, self.unsent.is_empty()) {
            (true, _) => EpollFlags::EPOLLOUT,
            (false, true) => EpollFlags::EPOLLIN,
            (false, false) => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        }
    }

    /// Reads, answers and writes as far as that is possible at once. Returns whether the client stays.
    fn serve(&mut self, events: EpollFlags, answer: &mut impl FnMut(&Request<'_>, Peer) -> Answer) -> bool {
        if events.contains(EpollFlags::EPOLLOUT) && !self.send() {
            return false;
        }
        if self.is_waiting {
            return self.answer(answer);
        }
        let mut bytes = [0; TAKEN_MAX];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        self.sent = Instant::now();
        let bytes = &bytes[..count];
        let end = bytes.iter().rposition(|byte| *byte == 0);
        self.unfinished = end.map_or(self.unfinished + count, |end| count - end - 1);
        if self.unfinished > TAKEN_MAX || self.protocol.handle_input(bytes).is_err() {
            return false;
        }
        self.answer(answer)
    }

    /// Answers some requests. Returns whether the client stays.
    fn answer(&mut self, answer: &mut impl FnMut(&Request<'_>, Peer) -> Answer) -> bool {
        for _ in 0..ANSWERED_MAX {
            let Some(event) = self.protocol.poll_event() else {
                self.is_waiting = false;
                return true;
            };
            let ServerEvent::Request { request } = event else { return false };
            let Answer { reply, follows } = answer(&request, self.peer);
            self.follows = follows.or(self.follows);
            if request.oneway != Some(true) && !self.tell(&reply) {
                return false;
            }
        }
        self.is_waiting = true;
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
mod tests;
