//! Versions 2.0 and 2.1.

use std::io::Write;
use std::sync::Arc;

use crate::rest::{
    By, MachineInfo, Snapshot, attributes, json as text, ps, select, storage, summary, v2,
    write_spec,
};
use plimsoll_observe::store::Container;
use plimsoll_observe::{GroupSet, Observer, processes};

use super::{
    Answer, Call, Options, blocking, events, json, kinds, paths, render_context, short,
    unknown_kind, v1, wait_for_sample,
};
use crate::http::response::Failure;
use crate::http::service::ServerState;

pub async fn answer(shared: &Arc<ServerState>, call: Call) -> Answer {
    // Every request is told of a bad option, even one that has no use for it.
    let options = Options::parse(&call.query).map_err(Failure::internal)?;
    if !kinds(call.version).contains(&call.kind.as_str()) {
        return Err(unknown_kind(&call));
    }
    let name = call.container();
    match call.kind.as_str() {
        "version" => {
            let version = shared.backend.versions().cadvisor;
            Ok(short(text::to_vec(version.as_str())?))
        }
        "attributes" => machine_attributes(shared).await,
        "machine" => v1::machine(shared).await,
        "storage" => file_systems(shared, call).await,
        "events" => events::answer(shared, &call).await,
        "ps" => process_list(shared, name, options).await,
        "machinestats" => machine_stats(shared, options).await,
        "appmetrics" => app_metrics(shared, name, options).await,
        "summary" => {
            each(shared, name, options, |_, container, _, out| {
                let shape = summary(&container.lock().derived);
                Ok(text::write(&shape, out)?)
            })
            .await
        }
        "spec" => {
            each(
                shared,
                name,
                options,
                |observer, container, options, out| {
                    let snapshot = Snapshot::take(container, &none(options));
                    Ok(write_spec(&snapshot, &render_context(observer), out)?)
                },
            )
            .await
        }
        _ if call.version == "v2.0" => {
            each(
                shared,
                name,
                options,
                |observer, container, options, out| {
                    let snapshot = Snapshot::take(container, &options.range());
                    Ok(v2::write_stats_20(
                        &snapshot,
                        &render_context(observer),
                        out,
                    )?)
                },
            )
            .await
        }
        _ => stats_21(shared, name, options).await,
    }
}

/// A description needs no samples.
fn none(options: &Options) -> crate::rest::Range {
    let mut range = options.range();
    range.most = Some(0);
    range
}

/// Takes the passes that `max_age` asks for, then writes `{path: …}` with whatever `write` says of each container.
async fn each<F>(shared: &Arc<ServerState>, name: String, options: Options, write: F) -> Answer
where
    F: Fn(&Observer, &Container, &Options, &mut dyn Write) -> Result<(), Failure> + Send + 'static,
{
    refresh(shared, &name, &options).await?;
    json(shared, move |shared, out| {
        let observer = shared.backend.observer();
        let found = select(&observer.store, &name, options.by, options.recursive)
            .map_err(Failure::internal)?;
        write_map(&found, out, |container, out| {
            write(observer, container, &options, out)
        })
    })
    .await
}

fn write_map(
    containers: &[Arc<Container>],
    out: &mut dyn Write,
    mut write: impl FnMut(&Container, &mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    out.write_all(b"{")?;
    for (index, container) in containers.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        text::write(container.path().as_ref(), &mut *out)?;
        out.write_all(b":")?;
        write(container, out)?;
    }
    Ok(out.write_all(b"}")?)
}

async fn refresh(shared: &Arc<ServerState>, name: &str, options: &Options) -> Result<(), Failure> {
    let Some(max_age) = options.max_age else {
        return Ok(());
    };
    let (name, options, selecting) = (name.to_owned(), options.clone(), Arc::clone(shared));
    let found = blocking(move || {
        let store = &selecting.backend.observer().store;
        select(store, &name, options.by, options.recursive)
    });
    let found = found.await?.map_err(Failure::internal)?;
    wait_for_sample(shared, paths(&found), max_age, GroupSet::EMPTY).await;
    Ok(())
}

/// The root's figures are the machine's, and told there.
async fn stats_21(shared: &Arc<ServerState>, name: String, options: Options) -> Answer {
    refresh(shared, &name, &options).await?;
    json(shared, move |shared, out| {
        let observer = shared.backend.observer();
        let mut found = select(&observer.store, &name, options.by, options.recursive)
            .map_err(Failure::internal)?;
        found.retain(|container| container.path().as_ref() != "/");
        let context = render_context(observer);
        write_map(&found, out, |container, out| {
            let snapshot = Snapshot::take(container, &options.range());
            Ok(v2::write_stats_21(&snapshot, &context, out)?)
        })
    })
    .await
}

async fn machine_stats(shared: &Arc<ServerState>, options: Options) -> Answer {
    if let By::Alias(namespace) = options.by
        && options.recursive
    {
        // The original dies of this.
        let namespace = namespace.as_str();
        return Err(Failure::bad(format!(
            "invalid request for machine stats of {namespace} containers"
        )));
    }
    refresh(shared, "/", &options).await?;
    json(shared, move |shared, out| {
        let observer = shared.backend.observer();
        let found = select(&observer.store, "/", options.by, options.recursive)
            .map_err(Failure::internal)?;
        let root = found
            .iter()
            .find(|container| container.path().as_ref() == "/");
        let Some(root) = root else {
            return Err(Failure::internal("the machine has no figures of its own"));
        };
        let snapshot = Snapshot::take(root, &options.range());
        Ok(v2::write_machine_stats(
            &snapshot,
            &render_context(observer),
            out,
        )?)
    })
    .await
}

async fn machine_attributes(shared: &Arc<ServerState>) -> Answer {
    json(shared, |shared, out| {
        let machine = MachineInfo::from(&*shared.backend.observer().machine.info());
        let versions = shared.backend.versions();
        Ok(text::write(&attributes(&machine, &versions), out)?)
    })
    .await
}

async fn file_systems(shared: &Arc<ServerState>, call: Call) -> Answer {
    json(shared, move |shared, out| {
        let storage = shared.backend.observer().machine.storage();
        if let Some(uuid) = call.query.filled("uuid") {
            let one = storage::with_uuid(&storage, uuid).map_err(Failure::internal)?;
            return Ok(text::write(&one, out)?);
        }
        let list = match call.query.filled("label") {
            Some(label) => storage::labelled(&storage, label).map_err(Failure::internal)?,
            None => storage::all(&storage),
        };
        Ok(text::write(&list, out)?)
    })
    .await
}

/// Never recursive, whatever was asked: a process is in one cgroup.
async fn process_list(shared: &Arc<ServerState>, name: String, options: Options) -> Answer {
    let failed = |error: String| Failure::internal(format!("process listing failed: {error}"));
    let options = Options {
        recursive: false,
        ..options
    };
    json(shared, move |shared, out| {
        let observer = shared.backend.observer();
        let found = select(&observer.store, &name, options.by, false)
            .map_err(|missing| failed(missing.to_string()))?;
        let Some(container) = found.first() else {
            return Err(failed("no container".to_owned()));
        };
        let now = observer.clock.now();
        let list = processes::processes(&observer.root, now, 0, container.path())
            .map_err(|error| failed(error.to_string()))?;
        let list: Vec<_> = list
            .into_iter()
            .map(|(process, open_files)| ps::shape(process, open_files, container.path()))
            .collect();
        Ok(text::write(&list, out)?)
    })
    .await
}

/// Metrics that applications publish themselves are not collected; the answer says so in the original's shape, under
/// the name that was asked for.
async fn app_metrics(shared: &Arc<ServerState>, name: String, options: Options) -> Answer {
    json(shared, move |shared, out| {
        let store = &shared.backend.observer().store;
        let found =
            select(store, &name, options.by, options.recursive).map_err(Failure::internal)?;
        if found.is_empty() {
            return Ok(out.write_all(b"{}")?);
        }
        out.write_all(b"{")?;
        text::write(name.as_str(), &mut *out)?;
        Ok(out.write_all(b":{}}")?)
    })
    .await
}
