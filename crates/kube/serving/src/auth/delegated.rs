//! Reads the front proxy's and the client certificate authority from the ConfigMap
//! `kube-system/extension-apiserver-authentication`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use plimsoll_waiting::Waiting;

use super::request_header::{FrontProxy, RequestHeaderConfig};
use crate::{CaBundle, TrustError};
use plimsoll_client::explain;
use plimsoll_client::file_watcher::{LOOK_EVERY, Watcher};
use plimsoll_client::reflector::{CacheSync, Change, Reflector};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_client::workqueue_metrics::WorkqueueMetrics;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// For an answer that can be done without.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Default)]
pub struct DelegatedAuthConfig {
    /// The cluster is not asked; only what is given here counts.
    pub skip_lookup: bool,
    /// Start even if the cluster does not tell. Requests may then all be nobody's in particular.
    pub tolerate_lookup_failure: bool,
    /// Instead of the cluster's client authority.
    pub client_ca_file: Option<PathBuf>,
    /// Instead of the cluster's front proxy.
    pub front_proxy: Option<FrontProxyFiles>,
}

#[derive(Debug, Clone)]
pub struct FrontProxyFiles {
    pub ca_file: PathBuf,
    pub rules: RequestHeaderConfig,
}

#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("cannot read ConfigMap {NAMESPACE}/{NAME}: {}{}", explain(.0), advice(.0))]
    Read(kube::Error),
    #[error("key {key} of ConfigMap {NAMESPACE}/{NAME}")]
    Authorities {
        key: &'static str,
        #[source]
        source: TrustError,
    },
    #[error("key {key} of ConfigMap {NAMESPACE}/{NAME} is no JSON list of texts")]
    List {
        key: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error(
        "ConfigMap {NAMESPACE}/{NAME} has no requestheader-client-ca-file; the API server needs \
         --requestheader-client-ca-file"
    )]
    NoFrontProxy,
    #[error("read {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("authorities in {}", path.display())]
    FileContent {
        path: PathBuf,
        #[source]
        source: TrustError,
    },
}

/// Beyond what everybody advises.
fn advice(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            ": bind the role extension-apiserver-authentication-reader of kube-system to it, or allow to start without"
        }
        _ => "",
    }
}

/// Whom to believe. Clones are the same, and what the cluster or a file says anew shows in all.
#[derive(Debug, Clone)]
pub struct DelegatedAuth {
    pub client_ca: CaBundle,
    pub front_proxy: FrontProxy,
    /// Taking what the ConfigMap says of either.
    work: [WorkqueueMetrics; 2],
    config: DelegatedAuthConfig,
}

impl DelegatedAuth {
    /// Reads files and asks the cluster, once.
    pub async fn lookup(client: &Client, config: DelegatedAuthConfig) -> Result<Self, LookupError> {
        let delegation = Self {
            client_ca: CaBundle::nobody(),
            front_proxy: FrontProxy::none(),
            work: [
                WorkqueueMetrics::new("DynamicConfigMapCABundle-client-ca"),
                WorkqueueMetrics::new("RequestHeaderAuthRequestController"),
            ],
            config,
        };
        delegation.read_files()?;
        if !delegation.asks_cluster() {
            return Ok(delegation);
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let waiting = Waiting::new(
            format!("ConfigMap {NAMESPACE}/{NAME}, which says whom to believe"),
            "is the API server overloaded or stopped, or does a firewall keep it from us?",
        );
        let asking = maps.get(NAME);
        let found = match delegation.config.tolerate_lookup_failure {
            false => waiting.during(asking).await,
            // Probes want an answer soon. What the cluster tells later is taken by whoever follows it.
            true => match tokio::time::timeout(PATIENCE, asking).await {
                Ok(found) => found,
                Err(late) => Err(kube::Error::Service(Box::new(late))),
            },
        };
        waiting.over();
        let found = found.map_err(LookupError::Read);
        match found.and_then(|map| delegation.take(&map)) {
            Ok(()) => {}
            Err(error) if delegation.config.tolerate_lookup_failure => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    "the cluster does not tell its front proxy and client authority; all requests may count as anonymous"
                );
            }
            Err(error) => return Err(error),
        }
        Ok(delegation)
    }

    fn asks_cluster(&self) -> bool {
        let all_given = self.config.client_ca_file.is_some() && self.config.front_proxy.is_some();
        !self.config.skip_lookup && !all_given
    }

    fn read_files(&self) -> Result<(), LookupError> {
        if let Some(path) = &self.config.client_ca_file {
            replace_from_file(&self.client_ca, path)?;
        }
        if let Some(given) = &self.config.front_proxy {
            replace_from_file(&self.front_proxy.trust, &given.ca_file)?;
            self.front_proxy.set_rules(given.rules.clone());
        }
        Ok(())
    }

    /// Takes what the ConfigMap says, all of it or nothing.
    fn take(&self, map: &ConfigMap) -> Result<(), LookupError> {
        let data = map.data.clone().unwrap_or_default();
        let text = |key: &str| data.get(key).map_or("", String::as_str);
        let [of_clients, of_proxy] = &self.work;
        if self.config.front_proxy.is_none() {
            of_proxy.run(|| self.take_front_proxy(&text))?;
        }
        if self.config.client_ca_file.is_none() {
            of_clients.run(|| self.take_client_ca(text("client-ca-file")))?;
        }
        Ok(())
    }

    fn take_front_proxy<'a>(&self, text: &impl Fn(&str) -> &'a str) -> Result<(), LookupError> {
        let rules = rules(text)?;
        let key = "requestheader-client-ca-file";
        if text(key).is_empty() {
            return Err(LookupError::NoFrontProxy);
        }
        let replaced = self.front_proxy.trust.replace(text(key).as_bytes());
        if replaced.map_err(|source| LookupError::Authorities { key, source })? {
            tracing::info!("the front proxy's authority is known");
        }
        self.front_proxy.set_rules(rules);
        Ok(())
    }

    fn take_client_ca(&self, pem: &str) -> Result<(), LookupError> {
        // A cluster may know no client certificates.
        if pem.is_empty() {
            self.client_ca.clear();
            return Ok(());
        }
        let key = "client-ca-file";
        let replaced = self.client_ca.replace(pem.as_bytes());
        replaced.map_err(|source| LookupError::Authorities { key, source })?;
        Ok(())
    }

    pub(crate) fn work(&self) -> &[WorkqueueMetrics] {
        &self.work
    }

    /// Keeps it true until the end: the ConfigMap is watched, and so are the files.
    pub fn spawn(&self, client: Client, shutdown: Shutdown) {
        let files: Vec<PathBuf> = {
            let proxy = self.config.front_proxy.as_ref().map(|p| p.ca_file.clone());
            self.config
                .client_ca_file
                .clone()
                .into_iter()
                .chain(proxy)
                .collect()
        };
        if !files.is_empty() {
            let following = self.clone().follow_files(files, shutdown.clone());
            shutdown.keep("following certificate authorities", following);
        }
        if self.asks_cluster() {
            self.clone().follow_cluster(client, shutdown);
        }
    }

    async fn follow_files(self, files: Vec<PathBuf>, shutdown: Shutdown) {
        let files = Watcher::new(files, LOOK_EVERY);
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                () = files.changed() => {}
            }
            if let Err(error) = self.read_files() {
                files.doubt();
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "cannot take changed authorities, keeping the old");
            }
        }
    }

    fn follow_cluster(self, client: Client, shutdown: Shutdown) {
        let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
        // Whoever may read this one map may watch it only by its name.
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let follow = move |change| {
            let (Change::Added(map) | Change::Updated { new: map, .. }) = change else {
                return;
            };
            if let Err(error) = self.take(&map) {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    "the cluster's authentication settings make no sense, keeping the old"
                );
            }
        };
        // It was read once already: nobody has to wait for it.
        Reflector::new(NAME, maps)
            .with(only)
            .on_change(follow)
            .spawn(&CacheSync::default(), shutdown);
    }
}

fn replace_from_file(trust: &CaBundle, path: &Path) -> Result<(), LookupError> {
    let pem = std::fs::read(path).map_err(|source| LookupError::File {
        path: path.to_owned(),
        source,
    })?;
    let replaced = trust.replace(&pem);
    replaced.map_err(|source| LookupError::FileContent {
        path: path.to_owned(),
        source,
    })?;
    Ok(())
}

fn rules<'a>(text: &impl Fn(&str) -> &'a str) -> Result<RequestHeaderConfig, LookupError> {
    let list = |key: &'static str| match text(key) {
        "" => Ok(Vec::new()),
        json => serde_json::from_str(json).map_err(|source| LookupError::List { key, source }),
    };
    Ok(RequestHeaderConfig {
        allowed_names: list("requestheader-allowed-names")?,
        username_headers: list("requestheader-username-headers")?,
        uid_headers: list("requestheader-uid-headers")?,
        group_headers: list("requestheader-group-headers")?,
        extra_prefixes: list("requestheader-extra-headers-prefix")?,
    })
}
