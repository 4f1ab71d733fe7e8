//! The daemon: it watches and places the programs of a machine or a user, and tells about them.
//!
//! Problem. BulldOver was a daemon: programs are placed although nobody types a prefix, and anybody can ask
//! what was done (BulldOver §IV). Approach. The same loop and engine as for a command, around all
//! processes instead of one. The loop has one thread: clients of the [`socket`] are served in it as an
//! onlooker of the world, and [`interface`] answers from the [`Top`] that the loop keeps up to date. So no
//! lock can be held and no state can be half new; in return each round does a bounded amount of work.
//!
//! Which policy places a program, and whether it is placed at all, is in the rules ([`treatments`]).

mod budget;
pub mod client;
mod detached;
mod error;
mod events;
mod explain;
mod exposition;
mod http;
mod interface;
mod known;
pub mod log;
mod metrics;
pub mod place;
mod power;
mod refusals;
mod replies;
mod reserved;
mod series;
mod socket;
mod tally;
mod text_file;
pub mod treatments;
mod trees;

use budget::Budget;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::Engine;
use corewise_core::observe::Input;
use corewise_core::plan::Action;
use corewise_core::report::Sources;
use corewise_live::{Onlooker, Trees};
pub use error::ServeError;
use exposition::Format;
use http::Http;
use known::Known;
use metrics::Answers;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socket::{Follows, Socket};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tally::Tally;
use text_file::TextFile;
use treatments::Treatments;

/// Where metrics can be read.
pub struct MetricsTo {
    /// Over HTTP.
    pub address: Option<SocketAddr>,
    /// In a file.
    pub file: Option<PathBuf>,
}

/// What is known, as the loop updates it and clients read it.
pub struct Daemon {
    known: Known,
    tally: Tally,
    socket: Socket,
    http: Option<Http>,
    file: Option<TextFile>,
    budget: Budget,
    /// The PEs that may be used, as of the last observation.
    usable: Option<CpuSet>,
}

impl Daemon {
    /// Opens the socket, and what tells metrics.
    pub fn open(
        path: &Path,
        treatments: Rc<RefCell<Treatments>>,
        (sources, notes): (Sources, Vec<String>),
        acts: bool,
        metrics: &MetricsTo,
    ) -> Result<Rc<RefCell<Daemon>>, ServeError> {
        let known = Known::new((sources, notes), treatments, acts);
        let (tally, socket) = (Tally::new(), Socket::bind(path)?);
        let http = metrics.address.map(Http::bind).transpose()?;
        if let Some(http) = &http {
            let (address, path) = (http.address()?, http::PATH);
            ::log::info!(corewise_event = "metrics"; "metrics are at http://{address}{path}");
        }
        let mut daemon =
            Daemon { known, tally, socket, http, file: None, budget: Budget::new(), usable: None };
        let create = |path: &PathBuf| TextFile::create(path, &daemon.metrics());
        daemon.file = metrics.file.as_ref().map(create).transpose()?;
        Ok(Rc::new(RefCell::new(daemon)))
    }

    /// Takes in one round of the loop, and reports it to the clients that follow.
    pub fn take(&mut self, input: &Input, actions: &[Action], engine: &Engine) {
        self.known.top.take(input, actions, engine);
        self.log_pes(input);
        self.known.treatments.borrow_mut().take_machine(engine.topology());
        self.tally.take(input, engine);
        self.known.events.take(input.outcomes(), &self.known.top);
        self.tell_events();
        if input.observation().is_some() {
            let Daemon { known, socket, budget, .. } = self;
            known.seen.take(&known.top);
            let state = |peer| Some(interface::status(known, peer, true));
            socket.tell_followers(budget, Follows::States, state);
        }
    }

    /// Logs that other PEs may be used than before: some went offline or came back, or belong to others now.
    fn log_pes(&mut self, input: &Input) {
        let Some(now) = input.observation().map(|observation| &observation.allowed) else { return };
        if let Some(before) = self.usable.replace(now.clone()).filter(|before| before != now) {
            ::log::info!(corewise_event = "usable_pes"; "PEs {now} may be used, before: {before}");
        }
    }

    /// Reports to the clients that follow what has happened since.
    fn tell_events(&mut self) {
        let news = self.known.events.take_news();
        if !news.is_empty() {
            let event = |peer| events::reply(&news, peer, true);
            self.socket.tell_followers(&mut self.budget, Follows::Events, event);
        }
    }

    /// Returns the metrics for a file. The collector joins the files of several daemons, so their samples
    /// differ in the label `socket`.
    fn metrics(&self) -> String {
        let answers = answers(&self.socket, &self.budget, self.http.as_ref());
        let socket = self.socket.path().to_string_lossy();
        let common = [("socket", &*socket)];
        metrics::text(&self.known, &self.tally, &answers, Format::Prometheus, &common)
    }

    /// Returns how long requests for metrics wait, if they do.
    fn http_waits(&self) -> Option<Duration> {
        let wait = self.http.as_ref().map(|_| self.budget.wait(None, Instant::now()));
        wait.filter(|wait| !wait.is_zero())
    }

    fn serve(&mut self, trees: &mut dyn Trees) {
        let Daemon { known, tally, socket, http, budget, .. } = self;
        socket.serve(budget, |request, peer| interface::answer(known, trees, request, peer));
        let may_scrape = budget.wait(None, Instant::now()).is_zero();
        if let Some(http) = http.as_mut().filter(|_| may_scrape) {
            let answers = answers(socket, budget, Some(http));
            let page =
                |format: Format| (metrics::text(known, tally, &answers, format, &[]), format.media_type());
            budget.pay(None, || http.serve(page));
        }
        if let Some(mut file) = self.file.take() {
            if file.due_within().is_zero() {
                file.write(&self.metrics());
            }
            self.file = Some(file);
        }
    }
}

fn answers(socket: &Socket, budget: &Budget, http: Option<&Http>) -> Answers {
    let http = http.map(|http| http.answered.clone()).unwrap_or_default();
    Answers { clients: socket.clients(), cpu: budget.spent(), http }
}

/// All who ask in the loop.
pub struct Clients {
    daemon: Rc<RefCell<Daemon>>,
    /// Readable while one of these is.
    ready: Epoll,
    _socket: OwnedFd,
    http: Option<OwnedFd>,
}

impl Clients {
    /// Creates it.
    pub fn of(daemon: Rc<RefCell<Daemon>>) -> Result<Clients, ServeError> {
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let socket = daemon.borrow().socket.descriptor()?;
        let http = daemon.borrow().http.as_ref().map(Http::descriptor).transpose()?;
        for descriptor in [&socket].into_iter().chain(&http) {
            ready.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        Ok(Clients { daemon, ready, _socket: socket, http })
    }

    /// Waits for requests for metrics unless those must wait.
    fn watch_http(&self, waits: bool) {
        let interest = if waits { EpollFlags::empty() } else { EpollFlags::EPOLLIN };
        if let Some(http) = &self.http {
            // It is in the set.
            let _ = self.ready.modify(http, &mut EpollEvent::new(interest, 0));
        }
    }
}

impl Onlooker for Clients {
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.0.as_fd())
    }

    fn due_within(&self) -> Option<Duration> {
        let daemon = self.daemon.borrow();
        let file = daemon.file.as_ref().map(TextFile::due_within);
        let delayed = daemon.socket.due_within(&daemon.budget);
        file.into_iter().chain(delayed).chain(daemon.http_waits()).min()
    }

    fn spent(&self) -> Duration {
        self.daemon.borrow().budget.spent()
    }

    fn serve(&mut self, trees: &mut dyn Trees) -> bool {
        let mut daemon = self.daemon.borrow_mut();
        daemon.serve(trees);
        daemon.tell_events();
        self.watch_http(daemon.http_waits().is_some());
        false
    }
}
