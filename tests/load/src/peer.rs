//! A real kube-apiserver on a real etcd, to be measured as ours is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::ports::{self, Reserved};

use crate::wire::Target;

const TOKEN: &str = "load-administrator";
const READY_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct Peer {
    apiserver: Ends,
    _etcd: Ends,
    address: String,
    certificate: String,
    _ports: [Reserved; 3],
}

/// A process that ends when it is dropped.
#[derive(Debug)]
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// `programs`: the folder with both; `folder`: where their files go.
    pub async fn start(programs: &Path, folder: &Path) -> Result<Self> {
        let ports = [ports::reserve()?, ports::reserve()?, ports::reserve()?];
        let [client, peer, serving] = ports.each_ref().map(|port| port.address().to_string());
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let mut etcd = Command::new(programs.join("etcd"));
        etcd.arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            // What it stores need not outlive the machine's power.
            .arg("--unsafe-no-fsync");
        let etcd = start(etcd, &folder.join("etcd.log"))?;

        let key = rcgen::KeyPair::generate()?;
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let certificate = params.self_signed(&key)?.pem();
        let file = |name: &str, contents: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, contents).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        let public = file("peer.pub", &key.public_key_pem())?;
        let key = file("peer.key", &key.serialize_pem())?;
        let chain = file("peer.crt", &certificate)?;
        let tokens = file(
            "tokens.csv",
            &format!("{TOKEN},admin,admin,system:masters\n"),
        )?;
        let mut apiserver = Command::new(programs.join("kube-apiserver"));
        let port = ports[2].address().port().to_string();
        apiserver
            .args(["--etcd-servers", &client, "--secure-port", &port])
            .args([
                "--bind-address",
                "127.0.0.1",
                "--authorization-mode",
                "RBAC",
            ])
            .args(["--service-cluster-ip-range", "10.0.0.0/24"])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .arg("--cert-dir")
            .arg(folder);
        for (flag, path) in [
            ("--tls-cert-file", &chain),
            ("--tls-private-key-file", &key),
            ("--service-account-key-file", &public),
            ("--service-account-signing-key-file", &key),
            ("--token-auth-file", &tokens),
        ] {
            apiserver.arg(flag).arg(path);
        }
        let peer = Self {
            apiserver: start(apiserver, &folder.join("kube-apiserver.log"))?,
            _etcd: etcd,
            address: serving,
            certificate,
            _ports: ports,
        };
        peer.wait_ready().await?;
        Ok(peer)
    }

    async fn wait_ready(&self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Ok(mut connection) = self.target()?.connect().await
                && connection.get("/readyz").await.is_ok()
            {
                return Ok(());
            }
            ensure!(Instant::now() < until, "kube-apiserver is not ready");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub fn target(&self) -> Result<Target> {
        Target::new(&self.address, TOKEN, self.certificate.as_bytes())
    }

    pub fn pid(&self) -> u32 {
        self.apiserver.0.id()
    }
}

fn start(mut command: Command, log: &Path) -> Result<Ends> {
    let log = fs::File::create(log).with_context(|| format!("write {}", log.display()))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("start {}", command.get_program().to_string_lossy()))?;
    Ok(Ends(child))
}
