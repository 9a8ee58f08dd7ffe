//! Where the API server's address and our credentials come from: a kubeconfig, or the files mounted into a pod.

use std::fmt;
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

#[derive(Debug, Clone)]
pub enum Source {
    /// A file, and which of its contexts; its current one unless told otherwise.
    Kubeconfig {
        path: PathBuf,
        context: Option<String>,
    },
    /// What every pod finds mounted.
    InCluster,
    /// Said outright.
    Given(Box<kube::Config>),
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "there is no kubeconfig at {}; name another with --kubeconfig, or leave it out inside a cluster",
        .0.display()
    )]
    Missing(PathBuf),
    #[error("kubeconfig {} has no context {wanted:?}; it has: {}", path.display(), known.join(", "))]
    NoContext {
        path: PathBuf,
        wanted: String,
        known: Vec<String>,
    },
    #[error("kubeconfig {} names no current context; choose one of: {}", path.display(), known.join(", "))]
    NoCurrentContext { path: PathBuf, known: Vec<String> },
    #[error(
        "kubeconfig {} is empty or has no contexts; give one that names a cluster and a user by --kubeconfig",
        .0.display()
    )]
    Empty(PathBuf),
    #[error("kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: KubeconfigError,
    },
    #[error(
        "this does not look like the inside of a cluster: give --kubeconfig, or run as a pod with a service account \
         token"
    )]
    NotInCluster(#[source] InClusterError),
    #[error(
        "no client can be made of this configuration; check the certificates and keys it names"
    )]
    Client(#[source] kube::Error),
}

/// What was found, and the files it came from that kube does not look at again.
pub(super) struct Found {
    pub config: kube::Config,
    pub files: Vec<PathBuf>,
}

/// What tells the API server who we are.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { path, .. } => {
                write!(f, "the credentials in {}", path.display())
            }
            Self::InCluster => f.write_str("the token of this pod's service account"),
            Self::Given(_) => f.write_str("the credentials of this process"),
        }
    }
}

impl Source {
    pub(super) async fn load(&self) -> Result<Found, ConfigError> {
        match self {
            Self::Given(config) => Ok(Found {
                config: (**config).clone(),
                files: Vec::new(),
            }),
            Self::InCluster => {
                let config = kube::Config::incluster().map_err(ConfigError::NotInCluster)?;
                Ok(Found {
                    config,
                    files: Vec::new(),
                })
            }
            Self::Kubeconfig { path, context } => from_file(path, context.clone()).await,
        }
    }
}

async fn from_file(path: &Path, context: Option<String>) -> Result<Found, ConfigError> {
    if !path.exists() {
        return Err(ConfigError::Missing(path.to_owned()));
    }
    let failed = |source| ConfigError::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let known: Vec<String> = kubeconfig.contexts.iter().map(|c| c.name.clone()).collect();
    if known.is_empty() {
        return Err(ConfigError::Empty(path.to_owned()));
    }
    let current = kubeconfig.current_context.clone();
    let wanted = context.or(current.filter(|name| !name.is_empty()));
    let Some(wanted) = wanted else {
        let path = path.to_owned();
        return Err(ConfigError::NoCurrentContext { path, known });
    };
    if !known.contains(&wanted) {
        let path = path.to_owned();
        return Err(ConfigError::NoContext {
            path,
            wanted,
            known,
        });
    }
    let options = KubeConfigOptions {
        context: Some(wanted),
        ..KubeConfigOptions::default()
    };
    let mut files = vec![path.to_owned()];
    let authorities = kubeconfig.clusters.iter().filter_map(|named| {
        let cluster = named.cluster.as_ref()?;
        cluster.certificate_authority.clone()
    });
    files.extend(authorities.map(PathBuf::from));
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(failed)?;
    files.extend(credentials(&config.auth_info));
    Ok(Found { config, files })
}

fn credentials(who: &AuthInfo) -> impl Iterator<Item = PathBuf> {
    let files = [&who.client_certificate, &who.client_key];
    files.into_iter().flatten().map(PathBuf::from)
}
