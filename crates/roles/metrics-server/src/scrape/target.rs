//! Where a node's page is.

use plimsoll_golang::url;
use thiserror::Error;

use crate::metadata::NodeInfo;

/// Where kubelets have it.
const PATH: &str = "/metrics/resource";

#[derive(Debug, Clone)]
pub struct Rules {
    pub port: u16,
    /// Prefer the port that the node's status tells.
    pub use_status_port: bool,
    /// The most wanted first.
    pub address_types: Vec<String>,
    /// Without TLS.
    pub plain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    pub port: u16,
    /// Fit for a request line.
    pub path: String,
    pub plain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no address matched types [{}]", .wanted.join(" "))]
pub struct NoAddress {
    wanted: Vec<String>,
}

impl Rules {
    pub fn target(&self, node: &NodeInfo) -> Result<Target, NoAddress> {
        let find = |kind: &String| node.addresses.iter().find(|(of, _)| of == kind);
        let Some((_, host)) = self.address_types.iter().find_map(find) else {
            return Err(NoAddress {
                wanted: self.address_types.clone(),
            });
        };
        let told = node.port.filter(|_| self.use_status_port);
        Ok(Target {
            host: host.clone(),
            port: told.unwrap_or(self.port),
            path: escape(node.path.as_deref().unwrap_or(PATH)),
            plain: self.plain,
        })
    }
}

impl Target {
    /// One connection would do for both.
    pub fn same_place(&self, other: &Self) -> bool {
        (&self.host, self.port, self.plain) == (&other.host, other.port, other.plain)
    }

    /// As in a URL and in the `Host` header.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

/// A path that can be sent, whatever somebody wrote into an annotation.
fn escape(path: &str) -> String {
    let kept = |byte| url::is_unreserved(byte) || b"/$&+,:;=@!'()*".contains(&byte);
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{}", url::escape(path, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(addresses: &[(&str, &str)]) -> NodeInfo {
        NodeInfo {
            name: "n".into(),
            addresses: addresses
                .iter()
                .map(|(kind, address)| ((*kind).to_owned(), (*address).to_owned()))
                .collect(),
            port: Some(20250),
            path: None,
            ready: true,
        }
    }

    fn rules(types: &[&str], use_status_port: bool) -> Rules {
        Rules {
            port: 10250,
            use_status_port,
            address_types: types.iter().map(|kind| (*kind).to_owned()).collect(),
            plain: false,
        }
    }

    #[test]
    fn the_first_of_the_most_wanted_type() {
        let node = node(&[
            ("Hostname", "h"),
            ("InternalIP", "10.0.0.1"),
            ("InternalIP", "fd00::1"),
            ("ExternalIP", "fd00::2"),
        ]);
        let authority = |types: &[&str], status| {
            let target = rules(types, status).target(&node);
            target.map(|target| target.authority())
        };
        assert_eq!(
            authority(&["InternalDNS", "InternalIP", "Hostname"], false).unwrap(),
            "10.0.0.1:10250"
        );
        assert_eq!(authority(&["Hostname"], true).unwrap(), "h:20250");
        assert_eq!(authority(&["ExternalIP"], true).unwrap(), "[fd00::2]:20250");
        assert_eq!(
            authority(&["ExternalDNS", "Other"], true)
                .unwrap_err()
                .to_string(),
            "no address matched types [ExternalDNS Other]"
        );
    }

    #[test]
    fn ports_and_paths_by_the_nodes_word() {
        let mut node = node(&[("Hostname", "h")]);
        node.port = None;
        let rules = rules(&["Hostname"], true);
        let target = rules.target(&node).unwrap();
        assert_eq!((target.port, &*target.path), (10250, "/metrics/resource"));
        node.path = Some("metrics/node 1?x\r\nHost: evil".to_owned());
        assert_eq!(
            rules.target(&node).unwrap().path,
            "/metrics/node%201%3Fx%0D%0AHost:%20evil"
        );
    }
}
