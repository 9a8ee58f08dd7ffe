//! Which containers a request means.

use std::sync::Arc;

use plimsoll_containers::Namespace;

use plimsoll_golang::strconv::quote;
use plimsoll_observe::store::{Container, Store};

/// How a container is named in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// By its cgroup path.
    #[default]
    Path,
    /// By a name, an id or the beginning of one, in this runtime.
    Alias(Namespace),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("unknown container {}", quote(.0))]
    Path(String),
    /// The colon is the original's.
    #[error("unknown container: {}", quote(.0))]
    Below(String),
    #[error("no containers found")]
    Nothing,
    #[error("unable to find container {} in {} namespace", quote(.name), quote(.namespace))]
    Alias {
        name: String,
        namespace: &'static str,
    },
    #[error("unable to find container in {} namespace. Container {} is not unique", quote(.namespace), quote(.name))]
    Ambiguous {
        name: String,
        namespace: &'static str,
    },
    #[error("invalid request for {namespace} container {} with subcontainers", quote(.name))]
    BelowAlias {
        name: String,
        namespace: &'static str,
    },
}

/// The visible container of this path.
pub fn by_path(store: &Store, path: &str) -> Result<Arc<Container>, Missing> {
    store
        .get(path)
        .filter(|c| c.lock().visible)
        .ok_or_else(|| Missing::Path(path.to_owned()))
}

/// Every container whose path begins with `prefix`, letter by letter: `/kube` finds `/kubepods` too, and clients of
/// the original may count on that.
pub fn by_prefix(store: &Store, prefix: &str) -> Vec<Arc<Container>> {
    let mut all = store.all();
    all.retain(|c| c.path().starts_with(prefix));
    all
}

/// The container that has this alias, or the only one with an alias that begins so.
pub fn by_alias(
    store: &Store,
    namespace: Namespace,
    name: &str,
) -> Result<Arc<Container>, Missing> {
    if let Some(found) = store.by_alias(namespace, name) {
        return Ok(found);
    }
    let begins = |c: &Arc<Container>| {
        let state = c.lock();
        let aliases = state.identity.iter().flat_map(|i| &i.aliases);
        aliases.into_iter().any(|alias| alias.starts_with(name))
    };
    let mut found = store.of_namespace(namespace);
    found.retain(begins);
    let namespace = namespace.as_str();
    let name = name.to_owned();
    match found.len() {
        0 => Err(Missing::Alias { name, namespace }),
        1 => Ok(found.swap_remove(0)),
        _ => Err(Missing::Ambiguous { name, namespace }),
    }
}

/// What a version 2 request asks for. `name` begins with a slash.
pub fn select(
    store: &Store,
    name: &str,
    by: By,
    recursive: bool,
) -> Result<Vec<Arc<Container>>, Missing> {
    match by {
        By::Path if recursive => {
            let found = by_prefix(store, name);
            match found.is_empty() {
                true => Err(Missing::Below(name.to_owned())),
                false => Ok(found),
            }
        }
        By::Path => Ok(vec![by_path(store, name)?]),
        By::Alias(namespace) if recursive && name == "/" => Ok(store.of_namespace(namespace)),
        By::Alias(namespace) if recursive => Err(Missing::BelowAlias {
            name: name.to_owned(),
            namespace: namespace.as_str(),
        }),
        By::Alias(namespace) => {
            let alias = name.strip_prefix('/').unwrap_or(name);
            Ok(vec![by_alias(store, namespace, alias)?])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::fixture;
    use std::time::Duration;

    fn store() -> Store {
        let store = Store::new(Duration::from_secs(60));
        for path in ["/", "/kubepods", "/kubepods/a"] {
            store.insert(path.into());
        }
        for (path, name, id) in [("/docker/1", "web", "abc1"), ("/docker/2", "db", "abd2")] {
            let identity = fixture::identity(Namespace::Docker, &[name, id]);
            store.insert(path.into()).lock().identity = Some(Arc::new(identity));
        }
        store
    }

    #[track_caller]
    fn check(name: &str, by: By, recursive: bool, expected: Result<&[&str], &str>) {
        let found = select(&store(), name, by, recursive);
        let found = found
            .as_ref()
            .map(|list| list.iter().map(|c| c.path().as_ref()).collect::<Vec<_>>())
            .map_err(|missing| missing.to_string());
        let expected = expected.map(<[&str]>::to_vec).map_err(str::to_owned);
        assert_eq!(found, expected);
    }

    #[test]
    fn by_cgroup_path() {
        check("/kubepods", By::Path, false, Ok(&["/kubepods"]));
        check("/kube", By::Path, true, Ok(&["/kubepods", "/kubepods/a"]));
        check(
            "/nope",
            By::Path,
            false,
            Err(r#"unknown container "/nope""#),
        );
        check(
            "/nope",
            By::Path,
            true,
            Err(r#"unknown container: "/nope""#),
        );
    }

    #[test]
    fn by_runtime_names() {
        let docker = By::Alias(Namespace::Docker);
        check("/web", docker, false, Ok(&["/docker/1"]));
        check("/abd", docker, false, Ok(&["/docker/2"]));
        check("/", docker, true, Ok(&["/docker/1", "/docker/2"]));
        check(
            "/ab",
            docker,
            false,
            Err(r#"unable to find container in "docker" namespace. Container "ab" is not unique"#),
        );
        check(
            "/nope",
            docker,
            true,
            Err(r#"invalid request for docker container "/nope" with subcontainers"#),
        );
        check(
            "/",
            By::Alias(Namespace::Podman),
            false,
            Err(r#"unable to find container "" in "podman" namespace"#),
        );
        check("/", By::Alias(Namespace::Podman), true, Ok(&[]));
    }
}
