//! A real kube-apiserver on a real etcd, in a folder that goes away with them.
//!
//! No controllers run beside it: nobody makes service accounts in new namespaces, removes what an owner left behind,
//! finishes namespaces or fills the status of budgets and quotas. Two admission plugins are off because they wait for
//! such work: `ServiceAccount` (refuses pods without a service account) and `TaintNodesByCondition` (taints nodes that
//! nobody would untaint). All the others are as they come.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use plimsoll_test_support::janitor;

use crate::certificates::{Authority, signing_key};
use crate::client::Server;
use crate::process::{Process, Scratch, free_address, wait_ready};

const TOKEN: &str = "cases-administrator";
/// Tokens of somebody without any rights, and of somebody who is given some.
pub const ALICE: &str = "cases-alice";
pub const READER: &str = "cases-reader";

/// Ends both programs when dropped; they also end with the process that started them.
#[derive(Debug)]
pub struct RealCluster {
    pub server: Server,
    pub apiserver: Program,
    pub etcd: Program,
    scratch: Scratch,
}

/// One of its programs, which can be ended and started again as it was.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: Vec<OsString>,
    log: PathBuf,
    pub process: Process,
}

impl Program {
    fn start(
        name: &'static str,
        programs: &Path,
        folder: &Path,
        arguments: Vec<OsString>,
    ) -> Result<Self> {
        let path = programs.join(name);
        let log = folder.join(format!("{name}.log"));
        let process = run(name, &path, &arguments, &log)?;
        Ok(Self {
            name,
            path,
            arguments,
            log,
            process,
        })
    }

    fn again(&mut self) -> Result<()> {
        self.process = run(self.name, &self.path, &self.arguments, &self.log)?;
        Ok(())
    }
}

fn run(name: &'static str, path: &Path, arguments: &[OsString], log: &Path) -> Result<Process> {
    let mut command = janitor::command_in(None, path);
    command.args(arguments);
    Process::start(name, command, log)
}

impl RealCluster {
    /// `programs` is a folder with kube-apiserver and etcd.
    pub fn start(programs: &Path) -> Result<Self> {
        Self::start_with(programs, &[])
    }

    /// With further flags of the API server.
    pub fn start_with(programs: &Path, flags: &[&str]) -> Result<Self> {
        let mut scratch = Scratch::make()?;
        let path = scratch.path().to_owned();
        let path = path.as_path();
        let (etcd, etcd_url) = start_etcd(programs, path)?;
        scratch.process(&etcd.process)?;
        let (mut apiserver, server) = start_apiserver(programs, path, &etcd_url, flags)?;
        scratch.process(&apiserver.process)?;
        wait_ready(&server, &mut apiserver.process)?;
        Ok(Self {
            server,
            apiserver,
            etcd,
            scratch,
        })
    }

    /// The API server, which has ended, once more.
    pub fn apiserver_again(&mut self) -> Result<()> {
        self.apiserver.again()?;
        self.scratch.process(&self.apiserver.process)?;
        wait_ready(&self.server, &mut self.apiserver.process)
    }

    /// The store, which has ended, once more.
    pub fn etcd_again(&mut self) -> Result<()> {
        self.etcd.again()?;
        self.scratch.process(&self.etcd.process)?;
        wait_ready(&self.server, &mut self.apiserver.process)
    }
}

fn start_etcd(programs: &Path, folder: &Path) -> Result<(Program, String)> {
    let client = format!("http://{}", free_address()?);
    let peer = format!("http://{}", free_address()?);
    let data = folder.join("etcd").into_os_string();
    let mut arguments = vec!["--data-dir".into(), data];
    let flags = [
        ("--listen-client-urls", &client),
        ("--advertise-client-urls", &client),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", &format!("default={peer}")),
    ];
    arguments.extend(
        flags
            .iter()
            .flat_map(|(name, value)| [(*name).into(), value.into()]),
    );
    // What it stores need not outlive the machine's power.
    arguments.push("--unsafe-no-fsync".into());
    let etcd = Program::start("etcd", programs, folder, arguments)?;
    Ok((etcd, client))
}

fn start_apiserver(
    programs: &Path,
    folder: &Path,
    etcd: &str,
    flags: &[&str],
) -> Result<(Program, Server)> {
    let address = free_address()?;
    let authority = Authority::make(folder, "authority")?;
    let serving = authority.server("apiserver")?;
    let front_proxies = Authority::make(folder, "front-proxy-authority")?;
    let front_proxy = front_proxies.client("front-proxy")?;
    let key = folder.join("service-accounts.key");
    let public_key = folder.join("service-accounts.pub");
    signing_key(&key, &public_key)?;
    let tokens = folder.join("tokens.csv");
    let users = format!(
        "{TOKEN},admin,admin,system:masters\n{ALICE},alice,alice-uid,dev\n{READER},reader,reader-uid,readers\n"
    );
    fs::write(&tokens, users)?;

    let mut arguments: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: &dyn AsRef<OsStr>| {
        arguments.extend([name.into(), value.as_ref().to_owned()]);
    };
    flag("--etcd-servers", &etcd);
    flag("--cert-dir", &folder);
    flag("--bind-address", &address.ip().to_string());
    flag("--secure-port", &address.port().to_string());
    flag("--tls-cert-file", &serving.certificate);
    flag("--tls-private-key-file", &serving.key);
    flag("--client-ca-file", &authority.certificate());
    flag("--service-cluster-ip-range", &"10.0.0.0/24");
    flag(
        "--service-account-issuer",
        &"https://kubernetes.default.svc.cluster.local",
    );
    flag("--service-account-key-file", &public_key);
    flag("--service-account-signing-key-file", &key);
    flag("--token-auth-file", &tokens);
    flag("--authorization-mode", &"RBAC");
    flag(
        "--disable-admission-plugins",
        &"ServiceAccount,TaintNodesByCondition",
    );
    flag(
        "--requestheader-client-ca-file",
        &front_proxies.certificate(),
    );
    flag("--requestheader-allowed-names", &"front-proxy");
    flag("--requestheader-username-headers", &"X-Remote-User");
    flag("--requestheader-group-headers", &"X-Remote-Group");
    flag("--requestheader-extra-headers-prefix", &"X-Remote-Extra-");
    flag("--proxy-client-cert-file", &front_proxy.certificate);
    flag("--proxy-client-key-file", &front_proxy.key);
    arguments.extend(["--enable-aggregator-routing=true", "--profiling=false"].map(OsString::from));
    arguments.extend(flags.iter().map(OsString::from));
    let apiserver = Program::start("kube-apiserver", programs, folder, arguments)?;

    let authorities = fs::read(authority.certificate())?;
    let server = Server::new(&format!("https://{address}"), &authorities, TOKEN)?;
    Ok((apiserver, server))
}
