//! A client of the daemon.

use super::interface::NAME;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use varlink::{Reply, Request};

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
                bail!("the daemon answers {error}: {}", reply.parameters.unwrap_or_default());
            }
            if !take(reply.parameters.unwrap_or_default())? || reply.continues != Some(true) {
                return Ok(());
            }
        }
    }
}

/// Returns where a daemon may be: the named one, or that of this user, then that of the machine.
pub fn candidates(named: Option<&Path>) -> Vec<PathBuf> {
    match named {
        Some(path) => vec![path.to_owned()],
        None => super::socket_of_user().into_iter().chain([super::OF_MACHINE.into()]).collect(),
    }
}
