//! A client of the daemon.

use super::replies::NAME;
use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use varlink::{Reply, Request};

/// How long a command waits for a daemon to take it over: nobody notices that.
const PATIENCE: Duration = Duration::from_millis(100);

/// A connection.
pub struct Connection {
    reader: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to the daemon at the first of these sockets that has one.
    pub fn open(paths: &[PathBuf]) -> Result<Connection> {
        let mut why_not = None;
        for path in paths {
            match UnixStream::connect(path) {
                Ok(stream) => return Ok(Connection { reader: BufReader::new(stream) }),
                Err(error) => why_not = Some((path, error)),
            }
        }
        match why_not {
            Some((path, error)) => bail!(
                "no daemon runs here ({}: {error}): `corewise daemon` starts one, `systemctl start corewise` \
                 that of the machine",
                path.display()
            ),
            None => bail!("no daemon can run here: XDG_RUNTIME_DIR is not set"),
        }
    }

    /// Connects to a daemon of this user, or of the machine, if one runs. It has to answer at once.
    pub fn to_running() -> Result<Option<(PathBuf, Connection)>> {
        for path in candidates(None) {
            if let Some(stream) = reach(&path)? {
                return Ok(Some((path, Connection { reader: BufReader::new(stream) })));
            }
        }
        Ok(None)
    }

    /// Calls a method that has one reply, and returns that.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Result<Value> {
        let mut answer = Value::Null;
        self.call(method, parameters, false, |reply| {
            answer = reply;
            Ok(true)
        })?;
        Ok(answer)
    }

    /// Calls a method, and hands over its replies until there are no more, or `take` wants none.
    pub fn call(
        &mut self,
        method: &str,
        parameters: Value,
        more: bool,
        mut take: impl FnMut(Value) -> Result<bool>,
    ) -> Result<()> {
        let mut request = Request::create(format!("{NAME}.{method}"), Some(parameters));
        request.more = more.then_some(true);
        let bytes = varlink::sansio::serialize_request(&request).context("the request cannot be written")?;
        self.reader.get_mut().write_all(&bytes).context("the daemon does not listen")?;
        loop {
            let mut message = Vec::new();
            self.reader.read_until(0, &mut message).context("the daemon does not answer")?;
            if message.pop() != Some(0) {
                bail!("the daemon has ended");
            }
            let reply: Reply =
                serde_json::from_slice(&message).context("the daemon's answer is not understood")?;
            if let Some(error) = reply.error {
                bail!(refusal(&error, &reply.parameters.unwrap_or_default()));
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
        None if super::named_socket().is_some() => super::socket_of_user().into_iter().collect(),
        None => super::socket_of_user().into_iter().chain([super::OF_MACHINE.into()]).collect(),
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
pub fn announce() -> Result<Option<PathBuf>> {
    let Some((path, mut daemon)) = Connection::to_running()? else { return Ok(None) };
    let asked = daemon.ask("Attach", json!({}));
    let answer = asked.map_err(|error| if is_late(&error) { anyhow!(HANGS) } else { error })?;
    if answer["acts"] == true { Ok(Some(path)) } else { bail!("it would change nothing of this command") }
}

const HANGS: &str = "it does not answer";

fn is_late(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Connects to a daemon, without waiting for one that hangs. Only one of root or of this user is trusted.
fn reach(path: &Path) -> Result<Option<UnixStream>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) => {}
        Err(Errno::EAGAIN) => bail!(HANGS),
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
