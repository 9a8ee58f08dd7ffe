//! The kubelet beside us, asked with the credentials that we have for the API server.

use std::sync::Arc;
use std::time::Duration;

use kube::config::AuthInfo;
use parking_lot::Mutex;
use plimsoll_client::{Clients, chain, explain_way_to, skip_tls_verify};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::cluster_state::{KubeletConfiguration, Node};
use super::counters::Counters;
use super::objects::PodList;

const SECURE_PORT: u16 = 10250;
pub const READ_ONLY_PORT: u16 = 10255;

/// The types of addresses that Kubernetes knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressType {
    Hostname,
    #[default]
    InternalIp,
    ExternalIp,
    InternalDns,
    ExternalDns,
}

impl AddressType {
    const ALL: [Self; 5] = [
        Self::Hostname,
        Self::InternalIp,
        Self::ExternalIp,
        Self::InternalDns,
        Self::ExternalDns,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// How to reach it.
#[derive(Debug, Clone)]
pub struct Access {
    /// Whose credentials are shown.
    pub clients: Clients,
    /// By its read-only port, without credentials, where it has one; else by TLS.
    pub plain_port: Option<u16>,
    /// `None`: the node's own, as its object has it; this machine's loopback address until that is known.
    pub address: Option<String>,
    /// Which of the node's own: `InternalIP` where it has none of that type.
    pub address_type: AddressType,
    /// For a whole answer.
    pub timeout: Duration,
}

/// Asks; keeps its connection.
#[derive(Debug)]
pub struct Kubelet {
    access: Access,
    current: Mutex<Option<Current>>,
    counters: Arc<Counters>,
}

struct Current {
    url: String,
    config: Arc<kube::Config>,
    client: kube::Client,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Kubelet {
    pub fn new(access: Access, counters: Arc<Counters>) -> Self {
        Self {
            access,
            current: Mutex::new(None),
            counters,
        }
    }

    /// All pods that the node should run, static ones included.
    pub async fn pods(
        &self,
        node: Option<&Node>,
    ) -> Result<Vec<super::cluster_state::Pod>, String> {
        let list: PodList = self.get(node, "/pods/").await?;
        let pods = list.items.unwrap_or_default();
        Ok(pods.into_iter().map(Into::into).collect())
    }

    pub async fn settings(&self, node: Option<&Node>) -> Result<KubeletConfiguration, String> {
        #[derive(Deserialize)]
        struct Page {
            kubeletconfig: KubeletConfiguration,
        }
        let page: Page = self.get(node, "/configz").await?;
        Ok(page.kubeletconfig)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        node: Option<&Node>,
        path: &'static str,
    ) -> Result<T, String> {
        let client = self.client(node)?;
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| error.to_string())?;
        let begin = Instant::now();
        let answer = tokio::time::timeout(self.access.timeout, client.request_text(request)).await;
        let code = match &answer {
            Ok(Ok(_)) => "200".to_owned(),
            Ok(Err(kube::Error::Api(status))) => status.code.to_string(),
            Ok(Err(_)) | Err(_) => String::new(),
        };
        self.counters.requests.took(path, &code, begin.elapsed());
        let text = match answer {
            Ok(Ok(text)) => text,
            Ok(Err(kube::Error::Api(status))) => return Err(refusal(&status)),
            Ok(Err(error)) => {
                let who = format!("the kubelet at {}", url(&self.access, node));
                return Err(explain_way_to(&who, &error));
            }
            Err(_) => return Err(format!("no answer within {:?}", self.access.timeout)),
        };
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
    }

    /// The same one until its address or our credentials change.
    fn client(&self, node: Option<&Node>) -> Result<kube::Client, String> {
        let url = url(&self.access, node);
        let config = self.access.clients.config();
        let mut current = self.current.lock();
        if let Some(current) = &*current
            && current.url == url
            && Arc::ptr_eq(&current.config, &config)
        {
            return Ok(current.client.clone());
        }
        let mut own = kube::Config::new(url.parse().map_err(|error| format!("{url}: {error}"))?);
        own.auth_info = match self.access.plain_port {
            Some(_) => AuthInfo::default(),
            None => config.auth_info.clone(),
        };
        // Kubelets sign their own certificates as a rule, and this one is on the same machine.
        skip_tls_verify(&mut own);
        own.connect_timeout = Some(self.access.timeout);
        own.proxy_url = None;
        let client = kube::Client::try_from(own).map_err(|error| chain(&error))?;
        *current = Some(Current {
            url,
            config,
            client: client.clone(),
        });
        Ok(client)
    }
}

fn refusal(status: &kube::core::Status) -> String {
    let advice = match status.code {
        401 => {
            "; the kubelet has the API server check our token: can it reach that, and does it have authentication.webhook enabled?"
        }
        403 => {
            "; grant nodes/pods and nodes/configz by RBAC, and for a kubelet before 1.33 see deploy/agent/rbac-kubelet-before-1.33.yaml"
        }
        _ => "",
    };
    format!("{} {}{advice}", status.code, status.message)
}

fn url(access: &Access, node: Option<&Node>) -> String {
    let of_type = |kind: AddressType| node.and_then(|node| node.address(kind.name()));
    let address = access.address.as_deref();
    let address = address.or_else(|| of_type(access.address_type));
    let address = address.or_else(|| of_type(AddressType::InternalIp));
    let address = address.unwrap_or("127.0.0.1");
    let address = match address.contains(':') && !address.starts_with('[') {
        true => format!("[{address}]"),
        false => address.to_owned(),
    };
    let port = node.and_then(|node| node.kubelet_port);
    match access.plain_port {
        Some(port) => format!("http://{address}:{port}"),
        None => format!("https://{address}:{}", port.unwrap_or(SECURE_PORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn access(plain_port: Option<u16>) -> Access {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let source = plimsoll_client::Source::Given(Box::new(config));
        Access {
            clients: plimsoll_client::Config::new(source).build().await.unwrap(),
            plain_port,
            address: None,
            address_type: AddressType::default(),
            timeout: Duration::from_secs(3),
        }
    }

    #[tokio::test]
    async fn where_it_is() {
        let node = Node {
            addresses: vec![
                ("Hostname".into(), "n1".into()),
                ("InternalIP".into(), "10.0.0.7".into()),
            ],
            kubelet_port: Some(10_260),
            ..Node::default()
        };
        let six = Node {
            addresses: vec![("InternalIP".into(), "fd00::7".into())],
            ..Node::default()
        };
        let secure = access(None).await;
        assert_eq!(url(&secure, None), "https://127.0.0.1:10250");
        assert_eq!(url(&secure, Some(&node)), "https://10.0.0.7:10260");
        assert_eq!(url(&secure, Some(&six)), "https://[fd00::7]:10250");
        let plain = access(Some(READ_ONLY_PORT)).await;
        assert_eq!(url(&plain, Some(&node)), "http://10.0.0.7:10255");
        let by_name = Access {
            address_type: AddressType::Hostname,
            ..secure
        };
        assert_eq!(url(&by_name, Some(&node)), "https://n1:10260");
        // Where a node does not have it, its internal address is better than none.
        assert_eq!(url(&by_name, Some(&six)), "https://[fd00::7]:10250");
        assert_eq!(
            AddressType::named("ExternalDNS"),
            Some(AddressType::ExternalDns)
        );
        assert_eq!(AddressType::named("internalip"), None);
    }

    #[test]
    fn settings_of_a_real_kubelet() {
        let page = r#"{"kubeletconfig":{"cgroupDriver":"cgroupfs","cpuManagerPolicy":"none","topologyManagerPolicy":"none",
            "topologyManagerScope":"container","kubeReserved":{"cpu":"500m"},"enforceNodeAllocatable":["pods"]}}"#;
        let page: serde_json::Value = serde_json::from_str(page).unwrap();
        let settings: KubeletConfiguration =
            serde_json::from_value(page["kubeletconfig"].clone()).unwrap();
        assert_eq!(settings.cgroup_driver, "cgroupfs");
        assert_eq!(settings.kube_reserved["cpu"], "500m");
        assert_eq!(settings.reserved_system_cpus, "");
    }
}
