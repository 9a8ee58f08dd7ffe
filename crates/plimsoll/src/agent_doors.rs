//! Where the agent is served, and to whom: one port, or one of metrics for everybody and one of everything for those whom
//! the cluster lets in.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use plimsoll_cadvisor::http::{self, Shown};
use plimsoll_serving::KeyPairFiles;
use plimsoll_serving::auth::DelegatedAuthConfig;
use plimsoll_serving::secure_serving;
use plimsoll_serving::secure_serving::SecureServing;

/// Of the port for those whom the cluster lets in, where the first one has metrics only.
pub const SECURE_PORT: u16 = 9121;

/// What is shown to anybody who reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Open {
    Everything,
    Metrics,
    Nothing,
}

/// What is known before anything is decided.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    pub listen: SocketAddr,
    /// Told by a flag.
    pub secure: Option<SocketAddr>,
    pub open: Option<Open>,
    /// Somebody runs this as a member of a cluster, or in a pod.
    pub in_cluster: bool,
    /// The cluster can be asked who may.
    pub can_ask: bool,
    /// Started as one of those who are replaced, whose port is scraped already.
    pub as_original: bool,
    /// A token or certificates of the operator's own guard it.
    pub has_secrets: bool,
}

/// Ports and what they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doors {
    /// For anybody, but for the operator's own secrets.
    pub open: Option<(SocketAddr, Shown)>,
    /// For those whom the cluster lets in; always HTTPS.
    pub guarded: Option<SocketAddr>,
}

impl Situation {
    fn is_open(&self) -> Open {
        self.open.unwrap_or(match self {
            Self {
                has_secrets: true, ..
            }
            | Self {
                in_cluster: false, ..
            } => Open::Everything,
            Self {
                as_original: true, ..
            } => Open::Metrics,
            _ => Open::Nothing,
        })
    }

    pub fn doors(&self) -> Result<Doors> {
        if self.secure.is_some() && !self.can_ask {
            bail!(
                "--secure-listen serves those whom the cluster lets in: tell which, by --kubeconfig or --in-cluster"
            );
        }
        let beside = SocketAddr::new(self.listen.ip(), SECURE_PORT);
        Ok(match self.is_open() {
            Open::Everything => Doors {
                open: Some((self.listen, Shown::Everything)),
                guarded: self.secure,
            },
            Open::Metrics => Doors {
                open: Some((self.listen, Shown::Metrics)),
                guarded: self.secure.or(self.can_ask.then_some(beside)),
            },
            Open::Nothing if self.can_ask => Doors {
                open: None,
                guarded: Some(self.secure.unwrap_or(self.listen)),
            },
            Open::Nothing if self.open.is_some() => bail!(
                "--open-to-all=nothing leaves those whom the cluster lets in: tell which, by --kubeconfig or --in-cluster"
            ),
            // In a pod without a token: scrapes go on, and nothing else is to be had.
            Open::Nothing => Doors {
                open: Some((self.listen, Shown::Metrics)),
                guarded: None,
            },
        })
    }
}

/// Binds what is behind the cluster's authentication and authorization.
pub async fn front(
    listen: SocketAddr,
    http: &http::Config,
    node: Option<&str>,
    source: plimsoll_client::Config,
) -> Result<SecureServing> {
    let clients = source.build().await.context("the cluster")?;
    let mut config = secure_serving::Config::new(listen);
    let serving = &mut config.serving;
    serving.certificate = http.tls.as_ref().map(|files| KeyPairFiles {
        cert: files.cert.clone(),
        key: files.key.clone(),
    });
    serving.names = node.map(str::to_owned).into_iter().collect();
    serving.http2 = false;
    // A node must be watched while the API server is away; who asks is then refused, not let in.
    config.authentication.delegation = DelegatedAuthConfig {
        tolerate_lookup_failure: true,
        ..DelegatedAuthConfig::default()
    };
    Ok(config.build(&clients).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation() -> Situation {
        Situation {
            listen: "127.0.0.1:9120".parse().unwrap(),
            secure: None,
            open: None,
            in_cluster: false,
            can_ask: false,
            as_original: false,
            has_secrets: false,
        }
    }

    #[track_caller]
    fn check(situation: Situation, expected: &str) {
        let said = match situation.doors() {
            Ok(Doors { open, guarded }) => {
                let open = open.map(|(at, shown)| format!("{shown:?} at {at}"));
                let guarded = guarded.map(|at| format!("guarded at {at}"));
                let said: Vec<String> = open.into_iter().chain(guarded).collect();
                said.join(", ")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected, "{situation:?}");
    }

    #[test]
    fn who_sees_what() {
        let alone = situation();
        check(alone, "Everything at 127.0.0.1:9120");
        let member = Situation {
            in_cluster: true,
            can_ask: true,
            ..alone
        };
        check(member, "guarded at 127.0.0.1:9120");
        let original = Situation {
            as_original: true,
            listen: "[::]:9316".parse().unwrap(),
            ..member
        };
        check(original, "Metrics at [::]:9316, guarded at [::]:9121");
        let secure = Some("[::]:1".parse().unwrap());
        check(
            Situation { secure, ..original },
            "Metrics at [::]:9316, guarded at [::]:1",
        );
        let as_cadvisor_elsewhere = Situation {
            in_cluster: false,
            can_ask: false,
            ..original
        };
        check(as_cadvisor_elsewhere, "Everything at [::]:9316");
        // A pod without a token cannot ask.
        let in_a_pod = Situation {
            can_ask: false,
            ..original
        };
        check(in_a_pod, "Metrics at [::]:9316");
        check(
            Situation {
                as_original: false,
                ..in_a_pod
            },
            "Metrics at [::]:9316",
        );
        let has_secrets = true;
        check(
            Situation {
                has_secrets,
                ..member
            },
            "Everything at 127.0.0.1:9120",
        );
    }

    #[test]
    fn what_is_told_holds() {
        let member = Situation {
            in_cluster: true,
            can_ask: true,
            ..situation()
        };
        for (open, expected) in [
            (Open::Everything, "Everything at 127.0.0.1:9120"),
            (
                Open::Metrics,
                "Metrics at 127.0.0.1:9120, guarded at 127.0.0.1:9121",
            ),
            (Open::Nothing, "guarded at 127.0.0.1:9120"),
        ] {
            let open = Some(open);
            check(Situation { open, ..member }, expected);
        }
        let nobody_to_ask = Situation {
            open: Some(Open::Nothing),
            ..situation()
        };
        check(
            nobody_to_ask,
            "--open-to-all=nothing leaves those whom the cluster lets in: tell which, by --kubeconfig or --in-cluster",
        );
        check(
            Situation {
                secure: Some("127.0.0.1:1".parse().unwrap()),
                ..situation()
            },
            "--secure-listen serves those whom the cluster lets in: tell which, by --kubeconfig or --in-cluster",
        );
    }
}
