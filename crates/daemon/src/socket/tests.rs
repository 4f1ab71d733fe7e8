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

/// A client of this user; the budget decides whether they are trusted.
fn connect_as(socket: &mut Socket, uid: u32, budget: &Budget) -> UnixStream {
    let (own, client) = UnixStream::pair().unwrap();
    own.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    socket.take_in(Client::new(own, Peer { uid, pid: 0 }, budget.is_trusted(Some(uid))));
    client
}

/// The users of the clients that are there, in the order in which these came.
fn users(socket: &Socket) -> Vec<u32> {
    let mut clients: Vec<_> = socket.clients.iter().collect();
    clients.sort_by_key(|(key, _)| **key);
    clients.into_iter().map(|(_, client)| client.peer.uid).collect()
}

/// Serves until the client has a whole message, or is disconnected.
fn message(socket: &mut Socket, client: &UnixStream) -> Option<String> {
    let (mut message, mut reader) = (Vec::new(), BufReader::new(client));
    loop {
        match reader.read_until(0, &mut message) {
            Ok(_) if message.pop() == Some(0) => return String::from_utf8(message).ok(),
            Ok(_) => return None,
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.serve(&mut Budget::new(), letters),
            Err(_) => return None,
        }
    }
}

const ASK: &[u8] = b"{\"method\":\"a.b\"}\0";
const ANSWER: &str = r#"{"parameters":{"letters":"x"}}"#;

#[test]
fn sockets_that_differ_in_the_ending_alone_are_two() {
    let directory = tempfile::tempdir().unwrap();
    let _one = Socket::bind(&directory.path().join("s.a")).unwrap();
    let _other = Socket::bind(&directory.path().join("s.b")).unwrap();
    assert!(Socket::bind(&directory.path().join("s.a")).is_err());
}

#[test]
fn others_cannot_lock_the_lock_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, lock) = (directory.path().join("socket"), directory.path().join("socket.lock"));
    File::create(&lock).unwrap().set_permissions(Permissions::from_mode(0o644)).unwrap();
    let socket = Socket::bind(&path).unwrap();
    assert_eq!(lock.metadata().unwrap().mode() & 0o777, 0o600, "an earlier version left it");
    drop(socket);
    let refused = || format!("{:?}", Socket::bind(&path).map(drop).unwrap_err());
    std::fs::hard_link(&lock, directory.path().join("other")).unwrap();
    assert!(refused().contains("another user"), "{}", refused());
    std::fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(directory.path().join("other"), &lock).unwrap();
    assert!(refused().starts_with("Create"), "{}", refused());
    std::fs::remove_file(&lock).unwrap();
    nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(refused().starts_with("Create"), "{}", refused());
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
        socket.serve(&mut Budget::new(), letters);
    }
    clients.iter_mut().for_each(|client| client.write_all(ASK).unwrap());
    for client in &clients {
        assert_eq!(message(&mut socket, client).as_deref(), Some(ANSWER));
    }
    drop(clients);
    let last = connect(&socket);
    while socket.clients.len() != 1 {
        socket.serve(&mut Budget::new(), letters);
    }
    drop(last);
}

#[test]
fn a_client_that_never_reads_is_disconnected_and_holds_nobody_up() {
    let (_directory, mut socket) = socket();
    let (mut silent, mut other) = (connect(&socket), connect(&socket));
    silent.write_all(b"{\"method\":\"a.b\",\"more\":true,\"parameters\":{\"count\":1000000}}\0").unwrap();
    while !socket.clients.values().any(|client| client.follows.is_some()) {
        socket.serve(&mut Budget::new(), letters);
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
        socket.serve(&mut Budget::new(), letters);
        // It may have been disconnected already.
        let _ = client.write_all(&bytes);
        socket.serve(&mut Budget::new(), letters);
    }
    let mut endless = connect(&socket);
    while endless.write_all(&[b'x'; 1000]).is_ok() {
        socket.serve(&mut Budget::new(), letters);
    }
    good.write_all(ASK).unwrap();
    assert_eq!(message(&mut socket, &good).as_deref(), Some(ANSWER));
}

#[test]
fn many_requests_at_once_are_answered_in_several_rounds() {
    let (_directory, mut socket) = socket();
    let (mut busy, mut other) = (connect(&socket), connect(&socket));
    socket.serve(&mut Budget::new(), letters);
    busy.write_all(&ASK.repeat(1000)).unwrap();
    other.write_all(ASK).unwrap();
    let mut answered = 0;
    socket.serve(&mut Budget::new(), |request, peer| {
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
            Err(_) => socket.serve(&mut Budget::new(), letters),
        }
    }
}

#[test]
fn requests_of_a_user_without_budget_wait_and_those_of_others_do_not() {
    let (_directory, mut socket) = socket();
    let mut budget = Budget::without_trust();
    let mut of = [1, 1, 2].map(|uid| connect_as(&mut socket, uid, &budget));
    budget.exhaust(Some(1));
    of.iter_mut().for_each(|client| client.write_all(ASK).unwrap());
    let mut has_answer = |socket: &mut Socket, budget: &mut Budget| {
        (0..10).for_each(|_| socket.serve(budget, letters));
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
    socket.serve(&mut budget, letters);
    drop(of);
    (0..10).for_each(|_| socket.serve(&mut budget, letters));
    assert_eq!((socket.clients.len(), socket.delayed.len()), (0, 0));
}

#[test]
fn while_a_user_without_budget_connects_newcomers_come_in_at_a_bounded_rate() {
    let (_directory, mut socket) = socket();
    let (mut without, mut budget) = (Budget::without_trust(), Budget::without_trust());
    without.exhaust(Some(nix::unistd::geteuid().as_raw()));
    let clients: Vec<UnixStream> = (0..2).map(|_| connect(&socket)).collect();
    socket.serve(&mut without, letters);
    assert_eq!(socket.clients.len(), 2, "those of one round come in");
    let late = connect(&socket);
    let mut events = [EpollEvent::empty(); 4];
    assert_eq!(socket.ready.wait(&mut events, EpollTimeout::ZERO), Ok(0), "nothing wakes the loop");
    assert!(socket.due_within(&budget).is_some_and(|within| within <= ARRIVALS_PAUSE));
    while socket.clients.len() < 3 {
        socket.serve(&mut budget, letters);
    }
    assert_eq!(socket.due_within(&budget), None);
    drop((clients, late));
}

#[test]
fn while_all_wait_together_the_user_whose_last_answer_is_the_oldest_comes_first() {
    let (_directory, mut socket) = socket();
    let (mut exhausted, mut budget) = (Budget::without_trust(), Budget::without_trust());
    let mut clients = [1, 2, 3].map(|uid| connect_as(&mut socket, uid, &exhausted));
    (100..110).for_each(|uid| exhausted.exhaust(Some(uid)));
    clients.iter_mut().for_each(|client| client.write_all(ASK).unwrap());
    while socket.delayed.len() < 3 {
        socket.serve(&mut exhausted, letters);
    }
    // The loop waits, and nothing wakes it.
    socket.serve(&mut exhausted, letters);
    [3, 1].into_iter().for_each(|uid| budget.pay(Some(uid), || ()));
    let mut answered = Vec::new();
    while answered.len() < 3 {
        socket.serve(&mut budget, |request, peer| {
            answered.push(peer.uid);
            letters(request, peer)
        });
    }
    assert_eq!(answered, [2, 3, 1]);
}

#[test]
fn a_user_has_so_many_clients_and_root_more() {
    let (_directory, mut socket) = socket();
    let (stranger, budget) = (12_345, Budget::new());
    let mut clients: Vec<_> =
        (0..2 * OF_USER_MAX).map(|_| connect_as(&mut socket, stranger, &budget)).collect();
    assert_eq!(users(&socket), [stranger; OF_USER_MAX]);
    let is_open = |client: &mut UnixStream| client.read(&mut [0]).is_err();
    assert!(clients.iter_mut().take(OF_USER_MAX).all(|client| !is_open(client)), "the idle ones leave first");
    clients.extend((0..2 * OF_USER_MAX).map(|_| connect_as(&mut socket, 0, &budget)));
    assert_eq!(socket.clients.len(), 3 * OF_USER_MAX);
}

#[test]
fn whatever_others_do_a_newcomer_finds_a_place_and_root_keeps_its_own() {
    let (_directory, mut socket) = socket();
    let budget = Budget::new();
    socket.clients_max = 6;
    let root = connect_as(&mut socket, 0, &budget);
    let mut connected = vec![root];
    // One person with the IDs of many users, each with two places.
    for uid in (101..120).flat_map(|uid| [uid, uid]) {
        connected.push(connect_as(&mut socket, uid, &budget));
    }
    assert_eq!((users(&socket)[0], users(&socket).len()), (0, 6));
    connected.push(connect_as(&mut socket, 7, &budget));
    assert_eq!(users(&socket).last(), Some(&7), "the user with the most loses one");
    connected.extend((0..6).map(|_| connect_as(&mut socket, 0, &budget)));
    assert_eq!(users(&socket), [0; 6]);
    connected.push(connect_as(&mut socket, 7, &budget));
    assert_eq!(users(&socket), [0; 6], "nobody takes one of root's");
}

#[test]
fn a_client_that_follows_is_disconnected_after_those_that_are_idle() {
    let (_directory, mut socket) = socket();
    let budget = Budget::new();
    socket.clients_max = 3;
    let clients = [101, 102, 103].map(|uid| connect_as(&mut socket, uid, &budget));
    for client in socket.clients.values_mut().filter(|client| client.peer.uid == 101) {
        client.follows = Some(Follows::States);
    }
    let later = connect_as(&mut socket, 104, &budget);
    assert_eq!(users(&socket), [101, 103, 104]);
    drop((clients, later));
}

#[test]
fn the_client_with_the_most_bytes_waiting_is_disconnected_and_root_is_not() {
    let (_directory, mut socket) = socket();
    let budget = Budget::new();
    let clients = [101, 0, 102, 103].map(|uid| connect_as(&mut socket, uid, &budget));
    let mut keys: Vec<u64> = socket.clients.keys().copied().collect();
    keys.sort_unstable();
    // Root has more than one of these, and one wants more than there is.
    for (key, share) in keys.iter().zip([3, 4, 2, 1]) {
        socket.clients.get_mut(key).unwrap().unsent = vec![0; WAITING_MAX / 10 * share];
    }
    socket.settle(keys[3], true);
    assert_eq!(users(&socket).len(), 4, "there is room for all");
    socket.clients.get_mut(&keys[3]).unwrap().unfinished = WAITING_MAX / 10 + 9;
    socket.settle(keys[3], true);
    assert_eq!(users(&socket), [0, 102, 103]);
    drop(clients);
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
