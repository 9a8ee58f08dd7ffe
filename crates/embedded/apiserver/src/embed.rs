//! The whole control plane in one process: build, spawn, drain.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_serving::{CaBundle, Certificate, Clients, Tls};

use crate::auth::{self, Authority, User};
use crate::controllers::{self, Which};
use crate::credentials::{Credentials, CredentialsError};
use crate::served;
use crate::server::Server;
use crate::store::{self, Expiry, PersistError, Store};

/// Requests at once on one HTTP/2 connection: clients share one among all their watches.
const STREAMS: u32 = 1000;

#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Where objects and credentials are kept; `None`: in memory.
    pub data_dir: Option<PathBuf>,
}

/// What few have a reason to change.
#[derive(Debug, Clone)]
pub struct Options {
    /// Events are forgotten when nobody has written them for this long; zero: never.
    pub event_ttl: Duration,
    /// What time it is.
    pub clock: fn() -> Timestamp,
    /// Whether a damaged store may be opened without what nobody can vouch for.
    pub restore: bool,
    /// What clients may have of the server.
    pub limits: plimsoll_serving::Limits,
}

impl Default for Options {
    /// As a real server that is not told otherwise.
    fn default() -> Self {
        Self {
            event_ttl: Duration::from_secs(3600),
            clock: Timestamp::now,
            restore: false,
            limits: plimsoll_serving::Limits {
                streams: STREAMS,
                ..plimsoll_serving::Limits::default()
            },
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Store(#[from] PersistError),
    #[error("make {}", path.display())]
    DataDir {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("use the server's certificate")]
    Certificate(#[from] plimsoll_serving::KeyPairError),
    #[error("use the certificate authority")]
    CaBundle(#[from] plimsoll_serving::TrustError),
    #[error("use the key for service accounts' tokens")]
    TokenKey(#[from] auth::KeyError),
    #[error(transparent)]
    Bind(#[from] plimsoll_serving::BindError),
}

/// Bound and checked; nothing runs yet.
#[derive(Debug)]
pub struct ControlPlane {
    server: Server,
    bound: plimsoll_serving::Bound,
    credentials: Credentials,
}

#[derive(Debug)]
pub struct Running {
    server: Server,
    serving: plimsoll_serving::Serving,
    credentials: Credentials,
}

impl Options {
    fn for_store(&self) -> store::Options {
        let after = SignedDuration::try_from(self.event_ttl).unwrap_or(SignedDuration::MAX);
        store::Options {
            clock: self.clock,
            restore: self.restore,
            expiry: (!after.is_zero()).then_some(Expiry {
                shelf: "events",
                after,
                attributes: served::attributes,
            }),
        }
    }
}

impl Config {
    pub async fn build(self) -> Result<ControlPlane, BuildError> {
        self.build_with(Options::default()).await
    }

    pub async fn build_with(self, options: Options) -> Result<ControlPlane, BuildError> {
        let mut pki = None;
        let clock = options.clock;
        let kept = options.for_store();
        let limits = options.limits;
        let store = match &self.data_dir {
            None => Store::in_memory(kept),
            Some(dir) => {
                let credentials = dir.join("pki");
                std::fs::create_dir_all(&credentials).map_err(|source| BuildError::DataDir {
                    path: credentials.clone(),
                    source,
                })?;
                pki = Some(credentials);
                Store::open(&dir.join("objects.redb"), kept, served::attributes)?
            }
        };
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ]
        .map(str::to_owned);
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        if !self.listen.ip().is_unspecified() && !self.listen.ip().is_loopback() {
            addresses.push(self.listen.ip());
        }
        let credentials = Credentials::obtain(pki.as_deref(), &names, &addresses)?;
        let clients = CaBundle::from_pem(credentials.authority.as_bytes())?;
        let front_proxy = CaBundle::from_pem(credentials.front_proxy_authority.as_bytes())?;
        let mut config = plimsoll_serving::Config::new(self.listen);
        config.limits = limits;
        let mut tls = Tls::new(Certificate::Given(plimsoll_serving::certified_key(
            credentials.server.chain.as_bytes(),
            credentials.server.key.as_bytes(),
        )?));
        tls.clients = Clients::Requested(vec![clients.clone(), front_proxy]);
        config.tls = Some(tls);
        let bound = config.bind().await?;
        let authority = authority(&credentials, clock, &store)?;
        let server = Server::new(store, authority, clients).await;
        let bound = bound.counting(server.counters());
        server.announce(&credentials).await?;
        server.publish_address(bound.local_addr()).await;
        if let Some(trouble) = server.store().trouble() {
            return Err(PersistError::Write(trouble).into());
        }
        Ok(ControlPlane {
            server,
            bound,
            credentials,
        })
    }
}

pub(crate) fn authority(
    credentials: &Credentials,
    clock: fn() -> Timestamp,
    store: &Store,
) -> Result<Authority, auth::KeyError> {
    let admin = User {
        name: "kubernetes-admin".to_owned(),
        groups: vec![auth::MASTERS.to_owned()],
        ..User::default()
    };
    let config = auth::Config {
        static_tokens: vec![(credentials.admin_token.clone(), admin)],
        signing_key: auth::SigningKey::from_pkcs8(&credentials.token_key)?,
        issuer: auth::DEFAULT_ISSUER.to_owned(),
        clock,
    };
    Ok(Authority::new(config, store))
}

impl ControlPlane {
    pub fn local_addr(&self) -> SocketAddr {
        self.bound.local_addr()
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    pub fn spawn(self) -> Running {
        self.spawn_with(Which::All)
    }

    /// As a real API server is alone: namespaces are not emptied, dependents do not follow their owners.
    pub fn spawn_without_controllers(self) -> Running {
        self.spawn_with(Which::OfTheServer)
    }

    fn spawn_with(self, which: Which) -> Running {
        controllers::spawn(&self.server, which);
        let serving = self.bound.spawn(self.server.clone());
        Running {
            server: self.server,
            serving,
            credentials: self.credentials,
        }
    }
}

impl Running {
    pub fn local_addr(&self) -> SocketAddr {
        self.serving.local_addr()
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// A kubeconfig for the administrator of this server.
    pub fn kubeconfig(&self) -> String {
        let address = self.local_addr();
        let host = match address.ip() {
            ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        self.credentials
            .kubeconfig(&format!("https://{host}:{}", address.port()))
    }

    /// Ends watches, lets requests finish, and waits until everything is on disk.
    pub async fn drain(self, within: Duration) {
        self.server.stop();
        self.serving.drain(within).await;
        self.server.store().flush().await;
    }
}
