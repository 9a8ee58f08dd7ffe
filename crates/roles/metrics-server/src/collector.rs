//! The data half of the server: watches, scrapes, keeps.

use std::time::Duration;
use std::{io, thread};

use plimsoll_apimachinery::selector::Requirement;
use plimsoll_client::reflector::{CacheSync, ReflectorStatus};
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Failure, ShutdownTrigger};
use tokio::runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::history::{self, History};
use crate::metadata;
use crate::scrape::{self, IdentityError, Rules, Scraper, Source, Telemetry, Trust};
use crate::store::{Settings, Store};
use crate::view::View;

#[derive(Debug, Clone)]
pub struct Config {
    /// The time between two scrapes of a node.
    pub resolution: Duration,
    /// How long the figures of a node are shown that cannot be scraped any more; `None`: for some rounds, zero: not at
    /// all, as the original has it.
    pub keep: Option<Duration>,
    /// A container without figures withholds itself only, not its pod.
    pub lenient_pods: bool,
    /// How much swap is used is shown, too.
    pub swap: bool,
    /// Which nodes are scraped and listed.
    pub node_selector: Vec<Requirement>,
    /// What workloads used is remembered for so long.
    pub history: Option<Duration>,
    pub scrape: scrape::Config,
}

impl Default for Config {
    /// The defaults of the flags.
    fn default() -> Self {
        let types = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP";
        Self {
            resolution: Duration::from_secs(60),
            keep: None,
            lenient_pods: false,
            swap: false,
            node_selector: Vec::new(),
            history: None,
            scrape: scrape::Config {
                rules: Rules {
                    port: 10250,
                    use_status_port: false,
                    address_types: types.split(',').map(str::to_owned).collect(),
                    plain: false,
                },
                trust: Trust::default(),
                request_timeout: Duration::from_secs(10),
                concurrency: 128,
                page_limit: 8 << 20,
                user_agent: concat!("plimsoll-metrics-server/", env!("CARGO_PKG_VERSION"))
                    .to_owned(),
            },
        }
    }
}

/// Built, and not running yet.
pub struct Collector {
    client: kube::Client,
    store: Store,
    telemetry: Telemetry,
    scraper: Scraper,
    gate: CacheSync,
}

impl Config {
    /// `client` tells which nodes and pods there are; `source` is who we are to kubelets. Reads certificates, asks
    /// nobody.
    pub fn build(self, client: kube::Client, source: Source) -> Result<Collector, IdentityError> {
        let mut settings = Settings::new(self.resolution);
        settings.lenient_pods = self.lenient_pods;
        settings.swap = self.swap;
        settings.node_selector = self.node_selector;
        settings.history = self
            .history
            .map(|span| History::new(history::Config::new(span)));
        if let Some(keep) = self.keep {
            settings.keep = keep;
        }
        let store = Store::new(settings);
        let telemetry = Telemetry::new(self.resolution);
        let scraper = Scraper::new(self.scrape, source, store.clone(), telemetry.clone())?;
        Ok(Collector {
            client,
            store,
            telemetry,
            scraper,
            gate: CacheSync::default(),
        })
    }
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector")
            .field("scraper", &self.scraper)
            .finish_non_exhaustive()
    }
}

/// Answers that come within this time are read in one go: on an idle machine, being woken for each costs more than
/// reading it.
const GATHER: Duration = Duration::from_millis(2);

impl Collector {
    pub fn view(&self) -> View {
        View::new(self.store.clone())
    }

    /// `None`: it is not kept.
    pub fn history(&self) -> Option<History> {
        self.store.settings().history.clone()
    }

    pub fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }

    /// Opens when nodes and pods are known.
    pub fn gate(&self) -> CacheSync {
        self.gate.clone()
    }

    /// Begins to watch, and to scrape each node as soon as it is known.
    ///
    /// Scraping has a thread of its own: it is many small steps, which would wake one worker after another, and whoever
    /// lists pods meanwhile does not get in its way.
    pub fn spawn(self) -> io::Result<Running> {
        let (stopper, shutdown) = shutdown::channel();
        let (changes, told) = unbounded_channel();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(|| thread::sleep(GATHER))
            .build()?;
        let (ends, ended) = oneshot::channel();
        let scraping = self.scraper.run(told, shutdown.clone());
        let scraping = shutdown.kept("scraping", scraping);
        thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || {
                runtime.block_on(scraping);
                // Whoever waited may have gone.
                let _ = ends.send(());
            })?;
        let watches = metadata::spawn(&self.client, &self.store, changes, &self.gate, &shutdown);
        Ok(Running {
            stopper,
            watches,
            scraping: ended,
        })
    }
}

#[derive(Debug)]
pub struct Running {
    stopper: ShutdownTrigger,
    watches: [ReflectorStatus; 2],
    scraping: oneshot::Receiver<()>,
}

impl Running {
    /// How the watches of nodes and of pods go.
    pub fn watches(&self) -> &[ReflectorStatus; 2] {
        &self.watches
    }

    /// Waits for a failure of what must not fail.
    pub fn failure(&self) -> impl Future<Output = Failure> + Send + use<> {
        self.stopper.failure()
    }

    /// Stops; scrapes that are on their way are given up.
    pub async fn drain(self, within: Duration) {
        self.stopper.stop();
        if tokio::time::timeout(within, self.scraping).await.is_err() {
            tracing::warn!(?within, "scraping did not stop in time");
        }
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
