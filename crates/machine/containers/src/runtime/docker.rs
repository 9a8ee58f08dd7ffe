//! The Docker Engine API, as Docker itself and Podman's compatibility service speak it.

mod wire;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hyper::StatusCode;
use plimsoll_host::Timestamp;
use serde::de::DeserializeOwned;

use super::http::{UnixHttp, refused};
use super::{Event, InspectResult, ListResult, Options, RuntimeError};
use crate::{Health, Identity, Namespace};

/// One container's description is some ten kilobytes; a list of all of them may be some megabytes.
const ONE_LIMIT: usize = 4 * 1024 * 1024;
const LIST_LIMIT: usize = 64 * 1024 * 1024;
/// Kinds of events that can change what is known; everything else would only be read to be thrown away.
const FOLLOWED: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";

/// A connected Docker or Podman.
#[derive(Debug, Clone)]
pub struct Docker {
    http: UnixHttp,
    namespace: Namespace,
    options: Options,
    /// Where it keeps its files, and in whose way.
    root_dir: PathBuf,
    driver: String,
}

/// What the engine says of itself; the original's `DockerStatus`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    pub version: String,
    pub api_version: String,
    pub kernel_version: String,
    pub os: String,
    pub hostname: String,
    pub root_dir: String,
    pub driver: String,
    pub driver_status: BTreeMap<String, String>,
    pub images: i64,
    pub containers: i64,
}

/// One image that has a name; the original's `DockerImage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub repo_tags: Vec<String>,
    /// Seconds since the epoch.
    pub created: i64,
    pub size: i64,
}

impl Docker {
    pub(crate) async fn connect(
        socket: &Path,
        namespace: Namespace,
        options: &Options,
    ) -> Result<Self, RuntimeError> {
        let http = UnixHttp::new(socket);
        let info: wire::Info = ask(&http, "/info", ONE_LIMIT).await?;
        Ok(Self {
            http,
            namespace,
            options: options.clone(),
            root_dir: PathBuf::from(info.docker_root_dir),
            driver: info.driver,
        })
    }

    /// `None`: this is Podman, whose directory the original takes no notice of.
    pub(crate) fn docker_root(&self) -> Option<&Path> {
        (self.namespace == Namespace::Docker).then_some(self.root_dir.as_path())
    }

    pub(crate) async fn ping(&self) -> Result<(), RuntimeError> {
        self.version().await.map(|_| ())
    }

    pub(crate) async fn version(&self) -> Result<String, RuntimeError> {
        let answer: wire::Version = ask(&self.http, "/version", ONE_LIMIT).await?;
        Ok(answer.version)
    }

    pub(crate) async fn inspect(&self, id: &str) -> Result<InspectResult, RuntimeError> {
        Ok(match self.inspect_raw(id).await? {
            Some(found) => self.seen(found),
            None => InspectResult::Unknown,
        })
    }

    async fn inspect_raw(&self, id: &str) -> Result<Option<wire::Inspect>, RuntimeError> {
        let path = format!("/containers/{id}/json");
        let (status, body) = self.http.get(&path, ONE_LIMIT).await?;
        match status {
            StatusCode::OK => parse(&body).map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(refused(status, &body)),
        }
    }

    pub(crate) async fn list(&self) -> Result<ListResult, RuntimeError> {
        let all: Vec<wire::Summary> = ask(&self.http, "/containers/json", LIST_LIMIT).await?;
        let ids = all.into_iter().map(|summary| summary.id);
        Ok(ListResult::Ids(ids.collect()))
    }

    pub(crate) async fn exit_code(&self, id: &str) -> Result<Option<i32>, RuntimeError> {
        let found = self.inspect_raw(id).await?;
        let state = found.and_then(|found| found.state);
        Ok(state.filter(|state| !state.running).map(|s| s.exit_code))
    }

    pub(crate) async fn follow(
        &self,
        mut each: impl FnMut(Event) + Send,
    ) -> Result<(), RuntimeError> {
        let take = |line: &[u8]| {
            if let Some(event) = event(parse(line)?) {
                each(event);
            }
            Ok(())
        };
        self.http.lines(FOLLOWED, take).await
    }

    pub async fn status(&self) -> Result<Status, RuntimeError> {
        let info: wire::Info = ask(&self.http, "/info", ONE_LIMIT).await?;
        let version: wire::Version = ask(&self.http, "/version", ONE_LIMIT).await?;
        Ok(status(info, version))
    }

    pub async fn images(&self) -> Result<Vec<Image>, RuntimeError> {
        let all: Vec<wire::Image> = ask(&self.http, "/images/json", LIST_LIMIT).await?;
        Ok(images(all))
    }

    fn seen(&self, found: wire::Inspect) -> InspectResult {
        let state = found.state.unwrap_or_default();
        let config = found.config.unwrap_or_default();
        let mut labels = config.labels.unwrap_or_default();
        if found.restart_count > 0 {
            labels.insert("restartcount".to_owned(), found.restart_count.to_string());
        }
        let network_mode = found
            .host_config
            .map(|h| h.network_mode)
            .unwrap_or_default();
        let upper = found
            .graph_driver
            .and_then(|driver| driver.data)
            .and_then(|mut data| data.remove("UpperDir"));
        let variables = config.env.unwrap_or_default();
        let identity = Identity {
            namespace: self.namespace,
            aliases: vec![
                found.name.trim_start_matches('/').to_owned(),
                found.id.clone(),
            ],
            image: config.image,
            labels,
            envs: self
                .options
                .envs(variables.iter().map(String::as_str), str::to_lowercase),
            created: timestamp(&found.created),
            started: timestamp(&state.started_at),
            pid: u32::try_from(state.pid).ok().filter(|pid| *pid > 0),
            owns_network: !network_mode.starts_with("container:"),
            health: Health(state.health.map(|h| h.status).unwrap_or_default()),
            writable_layer: upper.map(PathBuf::from),
            log_dir: Some(self.log_dir(&found.id)),
            id: found.id,
        };
        match state.running {
            true => InspectResult::CgroupTree(Box::new(identity)),
            false => InspectResult::Starting(Box::new(identity)),
        }
    }

    fn log_dir(&self, id: &str) -> PathBuf {
        match self.namespace {
            Namespace::Podman => self
                .root_dir
                .join(format!("{}-containers", self.driver))
                .join(id),
            _ => self.root_dir.join("containers").join(id),
        }
    }
}

async fn ask<T: DeserializeOwned>(
    http: &UnixHttp,
    path: &str,
    limit: usize,
) -> Result<T, RuntimeError> {
    let (status, body) = http.get(path, limit).await?;
    if status != StatusCode::OK {
        return Err(refused(status, &body));
    }
    parse(&body)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, RuntimeError> {
    serde_json::from_slice(body).map_err(|error| RuntimeError::Malformed(error.to_string().into()))
}

/// Unset times come as the year 1.
fn timestamp(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    let nanos = i64::try_from(time.as_nanosecond()).ok()?;
    (nanos >= 0).then_some(Timestamp(nanos))
}

fn event(message: wire::Message) -> Option<Event> {
    let actor = message.actor?;
    match message.action.as_str() {
        "die" | "died" => {
            let attributes = actor.attributes.unwrap_or_default();
            let code = ["exitCode", "containerExitCode"]
                .iter()
                .find_map(|key| attributes.get(*key)?.parse().ok())?;
            Some(Event::Exited(actor.id, code))
        }
        // `exec_…` come by the thousand where health checks run, and change nothing.
        action if action.starts_with("exec_") => None,
        "start" | "rename" | "update" | "restart" => Some(Event::Changed(actor.id)),
        action if action.starts_with("health_status") => Some(Event::Changed(actor.id)),
        _ => None,
    }
}

fn status(info: wire::Info, version: wire::Version) -> Status {
    Status {
        version: version.version,
        api_version: version.api_version,
        kernel_version: info.kernel_version,
        os: info.operating_system,
        hostname: info.name,
        root_dir: info.docker_root_dir,
        driver: info.driver,
        driver_status: info
            .driver_status
            .unwrap_or_default()
            .into_iter()
            .filter_map(|row| match <[String; 2]>::try_from(row) {
                Ok([key, value]) => Some((key, value)),
                Err(_) => None,
            })
            .collect(),
        images: info.images,
        containers: info.containers,
    }
}

fn images(all: Vec<wire::Image>) -> Vec<Image> {
    all.into_iter()
        .map(|image| Image {
            id: image.id,
            repo_tags: image.repo_tags.unwrap_or_default(),
            created: image.created,
            size: image.size,
        })
        // Left-overs of builds.
        .filter(|image| image.repo_tags != ["<none>:<none>"])
        .collect()
}

#[cfg(test)]
mod tests;
