//! The whole server in one process: the embedded API server, a way to it that can be blocked, a kubelet, clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use plimsoll_apiserver::embed;
use plimsoll_client::Clients;
use plimsoll_serving::KeyPairFiles;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::way::Way;
use crate::collector;
use crate::config::Config;
use crate::scrape::Trust;
use crate::server::{Figures, Running};

/// Much longer than anything here takes.
pub const SOON: Duration = Duration::from_secs(120);

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Signs servers' and clients' certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Certificate and key as PEM.
#[derive(Debug, Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("authority-{}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn issue(&self, name: &str, group: &str) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, name);
        subject.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap().pem();
        Pair {
            cert,
            key: key.serialize_pem(),
        }
    }
}

pub struct World {
    pub api: embed::Running,
    pub way: Way,
    pub authority: Authority,
    pub files: KeyPairFiles,
    pub running: Running,
    config: Config,
    collector: collector::Config,
    clients: Clients,
    _collecting: collector::Running,
    _dir: tempfile::TempDir,
}

impl World {
    pub async fn new(change: impl FnOnce(&mut Config)) -> Self {
        Self::with(|config, _| change(config)).await
    }

    pub async fn with(change: impl FnOnce(&mut Config, &mut collector::Config)) -> Self {
        let config = embed::Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: None,
        };
        let api = config.build().await.unwrap().spawn();
        let way = Way::to(api.local_addr()).await;
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let text = api
            .credentials()
            .kubeconfig(&format!("https://{}", way.address));
        std::fs::write(&kubeconfig, text).unwrap();
        let clients = plimsoll_client::Config::from_flag(Some(kubeconfig));
        let clients = clients.build().await.unwrap();

        let authority = Authority::new();
        let files = KeyPairFiles {
            cert: dir.path().join("tls.crt"),
            key: dir.path().join("tls.key"),
        };
        write(&authority.issue("server", "o"), &files);
        let client_ca = dir.path().join("clients.crt");
        std::fs::write(&client_ca, authority.pem()).unwrap();
        let mut config = Config::new("127.0.0.1:0".parse().unwrap());
        config.front.serving.certificate = Some(files.clone());
        config.front.authentication.delegation.client_ca_file = Some(client_ca);
        let mut collector = collector_config();
        change(&mut config, &mut collector);

        let (running, collecting) = start(config.clone(), collector.clone(), &clients).await;
        Self {
            api,
            way,
            authority,
            files,
            running,
            config,
            collector,
            clients,
            _collecting: collecting,
            _dir: dir,
        }
    }

    /// Another one beside the first, which knows nothing of it.
    pub async fn replica(&self) -> (Running, collector::Running) {
        start(self.config.clone(), self.collector.clone(), &self.clients).await
    }

    /// A node by the name `n` whose kubelet is there.
    pub async fn join(&self, kubelet: SocketAddr) {
        let nodes: Api<Node> = Api::all(self.api.client());
        let node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": kubelet.ip().to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
        }});
        nodes
            .patch_status("n", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    /// A pod of the namespace `default` that runs.
    pub async fn run(&self, name: &str) {
        let pods: Api<Pod> = Api::namespaced(self.api.client(), "default");
        let pod = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let runs = json!({"status": {"phase": "Running"}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&runs))
            .await
            .unwrap();
    }

    pub fn address(&self) -> SocketAddr {
        self.running.local_addr()
    }

    /// Somebody with a certificate that says so.
    pub fn client(&self, name: &str, group: &str, http2: bool) -> Client {
        self.client_of(self.address(), name, group, http2)
    }

    /// The same, of another server.
    pub fn client_of(&self, address: SocketAddr, name: &str, group: &str, http2: bool) -> Client {
        Client::new(
            address,
            &self.authority.pem(),
            Some(&self.authority.issue(name, group)),
            http2,
        )
    }
}

fn collector_config() -> collector::Config {
    let mut collector = collector::Config {
        // Short, for there is a lot of waiting for the next scrape.
        resolution: Duration::from_millis(250),
        ..collector::Config::default()
    };
    // No scrape is to fail because a busy machine holds it up.
    collector.scrape.request_timeout = SOON;
    collector.scrape.rules.plain = true;
    collector.scrape.rules.use_status_port = true;
    collector.scrape.trust = Trust {
        nothing: true,
        ..Trust::default()
    };
    collector
}

async fn start(
    config: Config,
    collector: collector::Config,
    clients: &Clients,
) -> (Running, collector::Running) {
    let identity = clients.clone();
    let source = Arc::new(move || identity.config());
    let collector = collector.build(clients.client(), source).unwrap();
    let figures = Figures {
        view: collector.view(),
        history: None,
        telemetry: collector.telemetry(),
        known: collector.gate(),
    };
    let server = config.build(clients.clone(), figures).await.unwrap();
    let gate = collector.gate();
    let collecting = collector.spawn().unwrap();
    gate.opens(SOON).await.unwrap();
    (server.spawn(), collecting)
}

/// The key first: for a moment they do not fit.
pub fn write(pair: &Pair, files: &KeyPairFiles) {
    let replace = |path: &Path, text: &str| {
        let beside: PathBuf = path.with_extension("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, path).unwrap();
    };
    replace(&files.key, &pair.key);
    replace(&files.cert, &pair.cert);
}

#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    connector: TlsConnector,
    http2: bool,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
    /// What the server showed.
    pub certificate: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr, ca_pem: &str, own: Option<&Pair>, http2: bool) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        // A resumed session would show the certificate that it began with.
        config.resumption = rustls::client::Resumption::disabled();
        let protocol: &[u8] = if http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        Self {
            address,
            connector: TlsConnector::from(Arc::new(config)),
            http2,
        }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path).await.unwrap()
    }

    /// `None`: nobody is there any more.
    pub async fn get_if_there(&self, path: &str) -> Option<Reply> {
        self.ask(Method::GET, path).await.ok()
    }

    /// On a connection of its own.
    pub async fn ask(&self, method: Method, path: &str) -> Result<Reply, BoxError> {
        self.open().await?.ask(method, path).await
    }

    pub async fn put(&self, path: &str, body: &str) -> Reply {
        let mut connection = self.open().await.unwrap();
        connection.send(Method::PUT, path, body).await.unwrap()
    }

    pub async fn open(&self) -> Result<Connection, BoxError> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost")?;
        let stream = self.connector.connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = shown.first().map(|leaf| leaf.to_vec()).unwrap_or_default();
        let stream = TokioIo::new(stream);
        let sender = if self.http2 {
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            Sender::Two(sender)
        } else {
            let (sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
            tokio::spawn(connection);
            Sender::One(sender)
        };
        Ok(Connection {
            sender,
            certificate,
        })
    }
}

enum Sender {
    One(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

pub struct Connection {
    sender: Sender,
    certificate: Vec<u8>,
}

impl Connection {
    pub async fn ask(&mut self, method: Method, path: &str) -> Result<Reply, BoxError> {
        self.send(method, path, "").await
    }

    async fn send(&mut self, method: Method, path: &str, body: &str) -> Result<Reply, BoxError> {
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let request = Request::builder()
            .method(method)
            .header("host", "localhost");
        let reply = match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                let request = request.uri(path).body(body)?;
                sender.send_request(request).await?
            }
            Sender::Two(sender) => {
                sender.ready().await?;
                let uri = format!("https://localhost{path}");
                let request = request.uri(uri).body(body)?;
                sender.send_request(request).await?
            }
        };
        let (head, body) = reply.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
            certificate: self.certificate.clone(),
        })
    }
}

/// Polls until it holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds().await {
        assert!(began.elapsed() < SOON, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
