//! Clients of all kinds at a socket.

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
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.take_turn(&mut Budget::new(), letters)
            }
            Err(_) => return None,
        }
    }
}

const ASK: &[u8] = b"{\"method\":\"a.b\"}\0";
const ANSWER: &str = r#"{"parameters":{"letters":"x"}}"#;

#[test]
fn others_cannot_lock_the_lock_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, lock) = (directory.path().join("socket"), directory.path().join("socket.lock"));
    File::create(&lock).unwrap().set_permissions(Permissions::from_mode(0o644)).unwrap();
    let socket = Socket::bind(&path).unwrap();
    assert_eq!(lock.metadata().unwrap().mode() & 0o777, 0o600, "an earlier version left it");
    drop(socket);
    let refused = || format!("{:#}", Socket::bind(&path).map(drop).unwrap_err());
    std::fs::hard_link(&lock, directory.path().join("other")).unwrap();
    assert!(refused().contains("another user"), "{}", refused());
    std::fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(directory.path().join("other"), &lock).unwrap();
    assert!(refused().contains("cannot create"), "{}", refused());
    std::fs::remove_file(&lock).unwrap();
    nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(refused().contains("cannot create"), "{}", refused());
}

#[test]
fn a_thousand_clients_are_answered() {
    let (_directory, mut socket) = socket();
    // As many as there may be.
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap().0;
    let count = (limit as usize / 4).saturating_sub(10).min(1000);
    let mut clients: Vec<UnixStream> = Vec::new();
    for _ in 0..count {
        clients.push(connect(&socket));
        socket.take_turn(&mut Budget::new(), letters);
    }
    clients.iter_mut().for_each(|client| client.write_all(ASK).unwrap());
    for client in &clients {
        assert_eq!(message(&mut socket, client).as_deref(), Some(ANSWER));
    }
    drop(clients);
    let last = connect(&socket);
    while socket.clients.len() != 1 {
        socket.take_turn(&mut Budget::new(), letters);
    }
    drop(last);
}

#[test]
fn a_client_that_never_reads_is_disconnected_and_holds_nobody_up() {
    let (_directory, mut socket) = socket();
    let (mut silent, mut other) = (connect(&socket), connect(&socket));
    silent.write_all(b"{\"method\":\"a.b\",\"more\":true,\"parameters\":{\"count\":1000000}}\0").unwrap();
    while !socket.clients.values().any(|client| client.follows.is_some()) {
        socket.take_turn(&mut Budget::new(), letters);
    }
    let state = |_| Some(Reply::parameters(Some(json!({"letters": "x".repeat(1_000_000)}))));
    while socket.clients.len() == 2 {
        socket.tell_followers(&mut Budget::new(), Follows::States, state);
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
        socket.take_turn(&mut Budget::new(), letters);
        // It may have been disconnected already.
        let _ = client.write_all(&bytes);
        socket.take_turn(&mut Budget::new(), letters);
    }
    let mut endless = connect(&socket);
    while endless.write_all(&[b'x'; 1000]).is_ok() {
        socket.take_turn(&mut Budget::new(), letters);
    }
    good.write_all(ASK).unwrap();
    assert_eq!(message(&mut socket, &good).as_deref(), Some(ANSWER));
}

#[test]
fn many_requests_at_once_are_answered_in_turns() {
    let (_directory, mut socket) = socket();
    let (mut busy, mut other) = (connect(&socket), connect(&socket));
    socket.take_turn(&mut Budget::new(), letters);
    busy.write_all(&ASK.repeat(1000)).unwrap();
    other.write_all(ASK).unwrap();
    let mut answered = 0;
    socket.take_turn(&mut Budget::new(), |request, peer| {
        answered += 1;
        letters(request, peer)
    });
    assert!((1..=2 * ANSWERED_MAX).contains(&answered), "{answered}");
    assert_eq!(message(&mut socket, &other).as_deref(), Some(ANSWER));
    // All are answered in the end, although the client sends nothing more.
    let mut reader = BufReader::new(&busy);
    let mut left = 1000;
    while left > 0 {
        let mut message = Vec::new();
        match reader.read_until(0, &mut message) {
            Ok(_) => left -= 1,
            Err(_) => socket.take_turn(&mut Budget::new(), letters),
        }
    }
}

#[test]
fn requests_of_a_user_without_budget_wait_and_those_of_others_do_not() {
    let (_directory, mut socket) = socket();
    let mut budget = Budget::without_trust();
    let connected = |socket: &mut Socket, uid: u32| {
        let (own, client) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        socket.last += 1;
        socket.ready.add(&own, EpollEvent::new(EpollFlags::EPOLLIN, socket.last)).unwrap();
        socket.clients.insert(socket.last, Client::new(own, Peer { uid, pid: 0 }));
        client
    };
    let mut of = [1, 1, 2].map(|uid| connected(&mut socket, uid));
    budget.exhaust(Some(1));
    of.iter_mut().for_each(|client| client.write_all(ASK).unwrap());
    let mut has_answer = |socket: &mut Socket, budget: &mut Budget| {
        (0..10).for_each(|_| socket.take_turn(budget, letters));
        of.each_mut().map(|client| client.read(&mut [0; 100]).is_ok())
    };
    assert_eq!(has_answer(&mut socket, &mut budget), [false, false, true]);
    assert!(socket.due_within(&budget).is_some_and(|within| !within.is_zero()));
    // It does not wake the loop while it waits.
    let mut events = [EpollEvent::empty(); 4];
    assert_eq!(socket.ready.wait(&mut events, EpollTimeout::ZERO), Ok(0));
    let mut refilled = Budget::without_trust();
    assert_eq!(socket.due_within(&refilled), Some(Duration::ZERO));
    assert_eq!(has_answer(&mut socket, &mut refilled), [true, true, false]);
    assert_eq!(socket.due_within(&refilled), None);
    // A client that leaves while its request waits is let go of.
    budget.exhaust(Some(2));
    of[2].write_all(ASK).unwrap();
    socket.take_turn(&mut budget, letters);
    drop(of);
    (0..10).for_each(|_| socket.take_turn(&mut budget, letters));
    assert_eq!((socket.clients.len(), socket.delayed.len()), (0, 0));
}

#[test]
fn while_a_user_without_budget_connects_newcomers_come_in_at_a_bounded_rate() {
    let (_directory, mut socket) = socket();
    let (mut without, mut budget) = (Budget::without_trust(), Budget::without_trust());
    without.exhaust(Some(nix::unistd::geteuid().as_raw()));
    let clients: Vec<UnixStream> = (0..2).map(|_| connect(&socket)).collect();
    socket.take_turn(&mut without, letters);
    assert_eq!(socket.clients.len(), 2, "those of one turn come in");
    let late = connect(&socket);
    let mut events = [EpollEvent::empty(); 4];
    assert_eq!(socket.ready.wait(&mut events, EpollTimeout::ZERO), Ok(0), "nothing wakes the loop");
    assert!(socket.due_within(&budget).is_some_and(|within| within <= ARRIVALS_PAUSE));
    while socket.clients.len() < 3 {
        socket.take_turn(&mut budget, letters);
    }
    assert_eq!(socket.due_within(&budget), None);
    drop((clients, late));
}

#[test]
fn a_user_has_so_many_clients_and_root_more() {
    let (_directory, mut socket) = socket();
    let (stranger, budget) = (Peer { uid: 12_345, pid: 0 }, Budget::new());
    for key in 1..=OF_USER_MAX as u64 {
        assert!(socket.has_room_for(stranger.uid, &budget));
        socket.clients.insert(key, Client::new(UnixStream::pair().unwrap().0, stranger));
    }
    let room = [stranger.uid, 0, 54_321].map(|uid| socket.has_room_for(uid, &budget));
    assert_eq!(room, [false, true, true]);
    socket.clients_max = OF_USER_MAX;
    assert!(!socket.has_room_for(0, &budget));
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
