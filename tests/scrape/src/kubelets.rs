//! Simulated kubelets: an address each, one certificate for all.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Not the usual one, which a real kubelet may have.
pub const PORT: u16 = 21250;
const CONTAINER: &str = "main";

#[derive(Debug)]
pub struct Kubelets {
    pub nodes: usize,
    pub pods: usize,
    gzip: bool,
    began: f64,
    served: AtomicU64,
    /// Somebody wants to know when a page was sent.
    watched: Mutex<Option<tokio::sync::mpsc::UnboundedSender<Sent>>>,
}

/// A page was sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub node: usize,
    /// What it said of the node's memory, which no other page of it says.
    pub memory: u64,
    pub at: std::time::Instant,
}

pub fn address(node: usize) -> Ipv4Addr {
    let [_, high, middle, low] = u32::try_from(node).unwrap_or(0).to_be_bytes();
    Ipv4Addr::new(127, 64 + high, middle, low)
}

pub fn node_name(node: usize) -> String {
    format!("node-{node:05}")
}

/// Namespace and name of a pod.
pub fn pod_name(node: usize, pod: usize) -> (String, String) {
    let namespace = format!("namespace-{:02}", pod % 20);
    (namespace, format!("workload-{pod:02}-5f7c9d8b6-{node:05}"))
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

impl Kubelets {
    pub async fn start(nodes: usize, pods: usize, gzip: bool) -> Result<Arc<Self>> {
        let this = Arc::new(Self {
            nodes,
            pods,
            gzip,
            began: now() - 3600.0,
            served: AtomicU64::new(0),
            watched: Mutex::new(None),
        });
        let acceptor = acceptor()?;
        for node in 0..nodes {
            let address = SocketAddr::from((address(node), PORT));
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("listen on {address}"))?;
            let (this, acceptor) = (Arc::clone(&this), acceptor.clone());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (this, acceptor) = (Arc::clone(&this), acceptor.clone());
                    // Whoever ends a connection ends it.
                    tokio::spawn(async move { this.serve(node, stream, acceptor).await });
                }
            });
        }
        Ok(this)
    }

    /// Pages sent so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub fn page_length(&self) -> usize {
        self.page(0).0.len()
    }

    /// Tells of each page from now on, until the receiver is gone.
    pub fn watch(&self) -> tokio::sync::mpsc::UnboundedReceiver<Sent> {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        *self.watched.lock() = Some(sender);
        receiver
    }

    async fn serve(&self, node: usize, stream: TcpStream, acceptor: TlsAcceptor) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = acceptor.accept(stream).await?;
        let mut request = Vec::new();
        loop {
            request.clear();
            while !request.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut request).await? == 0 {
                    return Ok(());
                }
            }
            let (page, memory) = self.page(node);
            let answer = match self.gzip {
                false => answer("", page.as_bytes()),
                true => answer("Content-Encoding: gzip\r\n", &zip(page.as_bytes())?),
            };
            stream.write_all(&answer).await?;
            stream.flush().await?;
            self.served.fetch_add(1, Ordering::Relaxed);
            let mut watched = self.watched.lock();
            let sent = Sent {
                node,
                memory,
                at: std::time::Instant::now(),
            };
            if watched
                .as_ref()
                .is_some_and(|told| told.send(sent).is_err())
            {
                *watched = None;
            }
        }
    }

    /// A page with every family that a kubelet has, and the node's memory on it.
    pub fn page(&self, node: usize) -> (String, u64) {
        let now = now();
        let stamp = (now * 1e3) as u64;
        let age = now - self.began;
        // Odd, so that it is shown as it is; another one each time.
        let memory = (stamp << 1) | 1;
        let mut page = String::with_capacity(32 * 1024);
        let value = |pod: usize, family: usize| match family {
            0 => format!("{:.9} {stamp}", age * (0.01 + pod as f64 / 1e3)),
            1 => format!("{:.6e} {stamp}", 2e7 + pod as f64 * 4096.0).replace("e7", "e+07"),
            2 => format!("{:.9}e+09", self.began / 1e9),
            _ => format!("0 {stamp}"),
        };
        let families = [
            ("cpu_usage_seconds_total", "counter", 0),
            ("memory_working_set_bytes", "gauge", 1),
            ("start_time_seconds", "gauge", 2),
            ("swap_limit_bytes", "gauge", 3),
            ("swap_usage_bytes", "gauge", 3),
        ];
        for (family, kind, which) in families {
            let _ = writeln!(page, "# TYPE container_{family} {kind}");
            for pod in 0..self.pods {
                let (namespace, name) = pod_name(node, pod);
                let _ = writeln!(
                    page,
                    "container_{family}{{container=\"{CONTAINER}\",namespace=\"{namespace}\",pod=\"{name}\"}} {}",
                    value(pod, which)
                );
            }
        }
        let _ = writeln!(
            page,
            "# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total {:.9} {stamp}\n\
             # TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes {memory} {stamp}",
            age * 2.5
        );
        for (family, kind, which) in [families[0], families[1], families[4]] {
            let _ = writeln!(page, "# TYPE pod_{family} {kind}");
            for pod in 0..self.pods {
                let (namespace, name) = pod_name(node, pod);
                let _ = writeln!(
                    page,
                    "pod_{family}{{namespace=\"{namespace}\",pod=\"{name}\"}} {}",
                    value(pod, which)
                );
            }
        }
        page.push_str("# TYPE resource_scrape_error gauge\nresource_scrape_error 0\n");
        page.push_str("# TYPE scrape_error gauge\nscrape_error 0\n");
        (page, memory)
    }
}

fn answer(encoding: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n{encoding}Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn zip(page: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(page)?;
    Ok(encoder.finish()?)
}

fn acceptor() -> Result<TlsAcceptor> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["kubelet".to_owned()])?.self_signed(&key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
