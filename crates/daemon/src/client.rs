//! A client of the daemon.

use crate::place;
use crate::replies::NAME;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use varlink::{Reply, Request};

/// How long a command waits for a daemon to take it over: nobody notices that.
const PATIENCE: Duration = Duration::from_millis(100);

/// Why a daemon does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is none at the socket that was tried last.
    #[error(
        "no daemon runs here ({}: {why}): `corewise daemon` starts one, `systemctl start corewise` that \
         of the machine",
        path.display()
    )]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// There is no place for a socket.
    #[error("no daemon can run here: XDG_RUNTIME_DIR is not set")]
    NoPlace,
    /// The request cannot be sent.
    #[error("the daemon does not listen")]
    NotListening(#[source] io::Error),
    /// The answer does not come.
    #[error("the daemon does not answer")]
    Silent(#[source] io::Error),
    /// It does not answer in time.
    #[error("it does not answer")]
    Hangs,
    /// It ended before it answered.
    #[error("the daemon has ended")]
    Ended,
    /// The request cannot be written.
    #[error("the request cannot be written")]
    Request(#[source] varlink::Error),
    /// The answer is not what the protocol has.
    #[error("the daemon's answer is not understood")]
    NotUnderstood(#[source] serde_json::Error),
    /// It says no.
    #[error("{0}")]
    Refused(String),
    /// It only watches.
    #[error("it would change nothing of this command")]
    OnlyWatches,
    /// The system refuses a socket.
    #[error("cannot connect")]
    Connect(#[from] io::Error),
}

impl From<Errno> for ClientError {
    fn from(errno: Errno) -> ClientError {
        ClientError::Connect(errno.into())
    }
}

/// A connection.
pub struct Connection {
    reader: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to the daemon at the first of these sockets that has one.
    pub fn open(paths: &[PathBuf]) -> Result<Connection, ClientError> {
        let mut why_not = None;
        for path in paths {
            match UnixStream::connect(path) {
                Ok(stream) => return Ok(Connection { reader: BufReader::new(stream) }),
                Err(why) => why_not = Some(ClientError::NotRunning { path: path.clone(), why }),
            }
        }
        Err(why_not.unwrap_or(ClientError::NoPlace))
    }

    /// Connects to a daemon of this user, or of the machine, if one runs. It has to answer at once.
    pub fn to_running() -> Result<Option<(PathBuf, Connection)>, ClientError> {
        for path in candidates(None) {
            if let Some(stream) = reach(&path)? {
                return Ok(Some((path, Connection { reader: BufReader::new(stream) })));
            }
        }
        Ok(None)
    }

    /// Calls a method that has one reply, and returns that.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Result<Value, ClientError> {
        let mut answer = Value::Null;
        self.call(method, parameters, false, |reply| {
            answer = reply;
            Ok::<_, ClientError>(true)
        })?;
        Ok(answer)
    }

    /// Calls a method, and hands over its replies until there are no more, or `take` wants none.
    pub fn call<E: From<ClientError>>(
        &mut self,
        method: &str,
        parameters: Value,
        more: bool,
        mut take: impl FnMut(Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut request = Request::create(format!("{NAME}.{method}"), Some(parameters));
        request.more = more.then_some(true);
        let bytes = varlink::sansio::serialize_request(&request).map_err(ClientError::Request)?;
        self.reader.get_mut().write_all(&bytes).map_err(ClientError::NotListening)?;
        loop {
            let mut message = Vec::new();
            self.reader.read_until(0, &mut message).map_err(ClientError::Silent)?;
            if message.pop() != Some(0) {
                return Err(ClientError::Ended.into());
            }
            let reply: Reply = serde_json::from_slice(&message).map_err(ClientError::NotUnderstood)?;
            if let Some(error) = reply.error {
                let why = refusal(&error, &reply.parameters.unwrap_or_default());
                return Err(ClientError::Refused(why).into());
            }
            if !take(reply.parameters.unwrap_or_default())? || reply.continues != Some(true) {
                return Ok(());
            }
        }
    }
}

/// Returns the socket of a daemon that runs here, if one does.
pub fn running() -> Option<PathBuf> {
    candidates(None).into_iter().find(|path| !matches!(reach(path), Ok(None)))
}

/// Returns where a daemon may be: the named one, or that of this user, then that of the machine.
pub fn candidates(named: Option<&Path>) -> Vec<PathBuf> {
    match named {
        Some(path) => vec![path.to_owned()],
        None if place::named().is_some() => place::of_user().into_iter().collect(),
        None => place::of_user().into_iter().chain([place::OF_MACHINE.into()]).collect(),
    }
}

/// Says why the daemon refuses something, and what would help.
fn refusal(error: &str, parameters: &Value) -> String {
    let pid = &parameters["pid"];
    match (error.rsplit('.').next().unwrap_or_default(), parameters["reason"].as_str()) {
        (_, Some(reason)) => reason.to_owned(),
        ("BadRules", _) => format!(
            "the rules stay as they are:\n{}",
            parameters["errors"].as_str().unwrap_or("the daemon does not tell why")
        ),
        ("NoSuchProcess", _) => format!("there is no process {pid}, or none that you may ask about"),
        ("NotFollowed", _) => {
            format!("the daemon does not follow process {pid}: `corewise attach {pid}` has it do so")
        }
        ("MethodNotFound", _) => "the daemon is older than this corewise: have it started again".to_owned(),
        _ => format!("the daemon answers {error}: {parameters}"),
    }
}

/// Announces this process to a daemon of this user, or of the machine, which follows it and what it becomes.
/// Returns the daemon's socket; `None` if none runs, and an error if one does not place it.
pub fn announce() -> Result<Option<PathBuf>, ClientError> {
    let Some((path, mut daemon)) = Connection::to_running()? else { return Ok(None) };
    let answer = match daemon.ask("Attach", json!({})) {
        Err(ClientError::Silent(error)) if error.kind() == ErrorKind::WouldBlock => Err(ClientError::Hangs),
        answer => answer,
    }?;
    if answer["acts"] == true { Ok(Some(path)) } else { Err(ClientError::OnlyWatches) }
}

/// Connects to a daemon, without waiting for one that hangs. Only one of root or of this user is trusted.
fn reach(path: &Path) -> Result<Option<UnixStream>, ClientError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) => {}
        Err(Errno::EAGAIN) => return Err(ClientError::Hangs),
        Err(_) => return Ok(None),
    }
    let stream = UnixStream::from(socket);
    let owner = getsockopt(&stream, PeerCredentials)?.uid();
    if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
        return Ok(None);
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(Some(stream))
}
