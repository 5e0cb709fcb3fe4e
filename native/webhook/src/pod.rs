//! A pod, and what of it changes.

use super::addition::Addition;
use serde_json::{Value, json};

const PREFIX: &str = "inference-logging.io/";
const INJECT: &str = "inference-logging.io/inject";
/// A list that the pod's own instrumentation reads too.
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Only this container gets variables and mounts; without it all do.
const CONTAINER: &str = "inference-logging.io/container";
/// The user whose records they are, where the pod's `securityContext` does not say it.
const USER: &str = "inference-logging.io/user";

/// The operations of a JSON patch (RFC 6902) that give `pod` what it asks for; none where it asks for nothing, or has it.
///
/// # Errors
/// It asks, and cannot be changed; the sentence says why.
pub fn operations(pod: &Value, addition: &Addition) -> Result<Vec<Value>, String> {
    if !asks(pod)? {
        return Ok(Vec::new());
    }
    let spec = &pod["spec"];
    let chosen = chosen(pod)?;
    let mut operations = Vec::new();
    let volumes = with(list(spec, "volumes"), &addition.volumes, "volume")?;
    operations.extend(volumes.map(|all| replace("/spec/volumes", all)));
    let missing = missing_init_containers(pod, &chosen, addition)?;
    if !missing.is_empty() {
        // After those that are there: they may fetch what the server needs, and end; the listener waits for the server.
        let all = list(spec, "initContainers").iter().cloned().chain(missing).collect();
        operations.push(replace("/spec/initContainers", all));
    }
    for (place, container) in chosen {
        let path = |name: &str| format!("/spec/containers/{place}/{name}");
        let env = with_variables(list(container, "env"), &addition.env);
        operations.extend(env.map(|all| replace(&path("env"), all)));
        let mounts = with_mounts(container, &addition.volume_mounts)?;
        operations.extend(mounts.map(|all| replace(&path("volumeMounts"), all)));
    }
    Ok(operations)
}

/// Whether the pod asks. An annotation of ours that does not exist, or has no such value, is a mistake: without it the pod
/// would be left out, or changed otherwise than is meant, and nobody would know.
fn asks(pod: &Value) -> Result<bool, String> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let mut names = annotations.into_iter().flatten().map(|(name, _)| name.as_str());
    let unknown = names.find(|name| name.starts_with(PREFIX) && ![INJECT, CONTAINER, USER].contains(name));
    if let Some(name) = unknown {
        return Err(format!("{name}: there is no such annotation; there are {INJECT}, {CONTAINER} and {USER}"));
    }
    match annotation(pod, INJECT) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("{INJECT}={other}: must be true or false")),
    }
}

fn annotation<'pod>(pod: &'pod Value, name: &str) -> Option<&'pod str> {
    pod["metadata"]["annotations"][name].as_str()
}

fn list<'pod>(of: &'pod Value, name: &str) -> &'pod [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

fn name(thing: &Value) -> &str {
    thing["name"].as_str().unwrap_or_default()
}

/// `add` of a member that is there replaces it.
fn replace(path: &str, all: Vec<Value>) -> Value {
    json!({"op": "add", "path": path, "value": all})
}

/// Whether `theirs` has all that `ours` says; the server adds defaults.
fn has(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            ours.iter().all(|(name, value)| theirs.get(name).is_some_and(|theirs| has(theirs, value)))
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(theirs, ours)| has(theirs, ours))
        }
        _ => theirs == ours,
    }
}

/// The containers that get variables and mounts, with their places.
fn chosen(pod: &Value) -> Result<Vec<(usize, &Value)>, String> {
    let only = annotation(pod, CONTAINER).unwrap_or_default();
    let all = list(&pod["spec"], "containers").iter().enumerate();
    let chosen: Vec<_> = all.filter(|(_, container)| only.is_empty() || name(container) == only).collect();
    match chosen.is_empty() {
        true => Err(format!("{CONTAINER}={only}: the pod has no such container")),
        false => Ok(chosen),
    }
}

/// `theirs` and what of `ours` is missing there; none where nothing is.
fn with(theirs: &[Value], ours: &[Value], what: &str) -> Result<Option<Vec<Value>>, String> {
    let mut all = theirs.to_vec();
    for thing in ours {
        match theirs.iter().find(|their| name(their) == name(thing)) {
            Some(same) if has(same, thing) => {}
            Some(_) => return Err(format!("{what} {}: the pod has another one of this name", name(thing))),
            None => all.push(thing.clone()),
        }
    }
    Ok((all.len() > theirs.len()).then_some(all))
}

/// Ours come first: others may refer to them. Theirs of the same name give way, as server and listener must agree; but
/// their attributes are for their own traces too, and get ours added, in their place.
fn with_variables(theirs: &[Value], ours: &[Value]) -> Option<Vec<Value>> {
    if theirs.len() >= ours.len() && theirs.iter().zip(ours).all(|(their, our)| has(their, our)) {
        return None;
    }
    let is_joined = |our: &&Value| name(our) == ATTRIBUTES && theirs.iter().any(|their| name(their) == ATTRIBUTES);
    let (joined, first): (Vec<_>, Vec<_>) = ours.iter().partition(is_joined);
    let kept = theirs.iter().filter(|their| first.iter().all(|our| name(our) != name(their)));
    let kept = kept.map(|their| match joined.first() {
        Some(our) if name(their) == ATTRIBUTES => with_attributes(their, our),
        _ => their.clone(),
    });
    let all: Vec<_> = first.iter().map(|our| (*our).clone()).chain(kept).collect();
    let is_there = theirs.len() == all.len() && theirs.iter().zip(&all).all(|(their, one)| has(their, one));
    (!is_there).then_some(all)
}

/// `their` variable with the attributes of `our` one; as it is where its value comes from elsewhere.
fn with_attributes(their: &Value, our: &Value) -> Value {
    let mut made = their.clone();
    if let (Some(own), Some(added)) = (their["value"].as_str(), our["value"].as_str())
        && !own.ends_with(added)
    {
        made["value"] = json!(if own.is_empty() { added.to_owned() } else { format!("{own},{added}") });
    }
    made
}

fn with_mounts(container: &Value, ours: &[Value]) -> Result<Option<Vec<Value>>, String> {
    let theirs = list(container, "volumeMounts");
    let mut all = theirs.to_vec();
    for mount in ours {
        match theirs.iter().find(|their| their["mountPath"] == mount["mountPath"]) {
            Some(same) if has(same, mount) => {}
            Some(_) => {
                let path = mount["mountPath"].as_str().unwrap_or_default();
                return Err(format!("container {}: mounts something else at {path}", name(container)));
            }
            None => all.push(mount.clone()),
        }
    }
    Ok((all.len() > theirs.len()).then_some(all))
}

/// The init containers that the pod does not have, with the user of its containers: queues are their owner's only.
fn missing_init_containers(pod: &Value, chosen: &[(usize, &Value)], addition: &Addition) -> Result<Vec<Value>, String> {
    let mut missing = Vec::new();
    for container in &addition.init_containers {
        let mut theirs = list(&pod["spec"], "initContainers").iter().chain(list(&pod["spec"], "containers"));
        match theirs.find(|their| name(their) == name(container)) {
            // Its image may have been replaced by a digest since.
            Some(same) if same["command"] == container["command"] => {}
            Some(_) => return Err(format!("container {}: the pod has another one of this name", name(container))),
            None => missing.push(container.clone()),
        }
    }
    if missing.is_empty() {
        return Ok(missing);
    }
    missing.iter().try_for_each(|container| ports_are_free(pod, container))?;
    let user = user(pod, chosen)?;
    for container in &mut missing {
        let security = &mut container["securityContext"];
        security["runAsUser"] = json!(user);
        if user == 0 {
            security["runAsNonRoot"] = json!(false);
        }
    }
    Ok(missing)
}

fn ports(container: &Value) -> impl Iterator<Item = u64> {
    list(container, "ports").iter().filter_map(|port| port["containerPort"].as_u64())
}

/// A container whose port is taken ends at once, again and again, and the pod's own containers would never start.
fn ports_are_free(pod: &Value, ours: &Value) -> Result<(), String> {
    let Some(first) = ports(ours).next() else { return Ok(()) };
    let whose = name(ours);
    if pod["spec"]["hostNetwork"] == true {
        return Err(format!(
            "hostNetwork: port {first} of container {whose} would be the node's, where another pod may have it; \
             a listener of the node needs none"
        ));
    }
    let mut theirs = list(&pod["spec"], "initContainers").iter().chain(list(&pod["spec"], "containers"));
    let taken = |container: &&Value| ports(container).any(|port| ports(ours).any(|own| own == port));
    match theirs.find(taken) {
        Some(container) => {
            Err(format!("container {}: has a port that container {whose} needs, {first}", name(container)))
        }
        None => Ok(()),
    }
}

/// The user that the chosen containers run as.
fn user(pod: &Value, chosen: &[(usize, &Value)]) -> Result<u64, String> {
    let of_pod = pod["spec"]["securityContext"]["runAsUser"].as_u64();
    let said = match annotation(pod, USER) {
        Some(text) => Some(text.parse().map_err(|_| format!("{USER}={text}: not the number of a user"))?),
        None => None,
    };
    let mut found = None;
    for (_, container) in chosen {
        let own = container["securityContext"]["runAsUser"].as_u64();
        let user = own.or(of_pod).or(said).ok_or_else(|| {
            let name = name(container);
            format!("container {name}: its user is not known: give runAsUser, or the annotation {USER}")
        })?;
        if found.is_some_and(|other| other != user) {
            return Err(format!("its containers run as different users: name one by the annotation {CONTAINER}"));
        }
        found = Some(user);
    }
    found.ok_or_else(|| "it has no container".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition() -> Addition {
        let document = json!({
            "volumes": [{"name": "queue", "emptyDir": {"medium": "Memory"}}],
            "initContainers": [{
                "name": "listener", "command": ["/l"], "ports": [{"name": "metrics", "containerPort": 9464}],
                "securityContext": {"runAsNonRoot": true},
            }],
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LISTENER", "value": "external"},
            ],
            "volumeMounts": [{"name": "queue", "mountPath": "/run/q"}],
        });
        Addition::parse(&document.to_string()).unwrap()
    }

    fn pod() -> Value {
        json!({
            "metadata": {"annotations": {INJECT: "true"}},
            "spec": {
                "securityContext": {"runAsUser": 7},
                "containers": [
                    {"name": "engine", "env": [{"name": "LISTENER", "value": "x"}, {"name": "OWN", "value": "1"}]},
                    {"name": "proxy", "volumeMounts": [{"name": "own", "mountPath": "/own"}]},
                ],
                "volumes": [{"name": "own"}],
            },
        })
    }

    /// Applies what `operations` makes: each replaces a member, whole.
    fn changed(pod: &Value) -> Value {
        let mut made = pod.clone();
        for operation in operations(pod, &addition()).unwrap() {
            let (parent, member) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
            made.pointer_mut(parent).unwrap()[member] = operation["value"].clone();
        }
        made
    }

    fn names(things: &Value) -> Vec<&str> {
        things.as_array().unwrap().iter().map(name).collect()
    }

    #[test]
    fn a_pod_gets_what_it_asks_for_and_keeps_its_own() {
        let made = changed(&pod());
        let spec = &made["spec"];
        assert_eq!(names(&spec["volumes"]), ["own", "queue"]);
        assert_eq!(names(&spec["initContainers"]), ["listener"]);
        assert_eq!(spec["initContainers"][0]["securityContext"], json!({"runAsNonRoot": true, "runAsUser": 7}));
        assert_eq!(names(&spec["containers"][0]["env"]), ["POD", "LISTENER", "OWN"]);
        assert_eq!(spec["containers"][0]["env"][1]["value"], "external");
        assert_eq!(names(&spec["containers"][1]["env"]), ["POD", "LISTENER"]);
        assert_eq!(names(&spec["containers"][1]["volumeMounts"]), ["own", "queue"]);
        assert_eq!(spec["containers"][0]["name"], "engine");
    }

    #[test]
    fn a_pod_that_has_it_is_unchanged_also_with_the_defaults_of_the_server() {
        let mut made = changed(&pod());
        made["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
        made["spec"]["initContainers"][0]["imagePullPolicy"] = json!("Always");
        assert_eq!(operations(&made, &addition()), Ok(Vec::new()));
    }

    #[test]
    fn a_pod_that_does_not_ask_is_unchanged() {
        for annotations in [json!({}), json!(null), json!({INJECT: "false"}), json!({CONTAINER: "engine"})] {
            let mut asks_not = pod();
            asks_not["metadata"]["annotations"] = annotations;
            assert_eq!(operations(&asks_not, &addition()), Ok(Vec::new()));
        }
        assert_eq!(operations(&json!({}), &addition()), Ok(Vec::new()));
    }

    #[test]
    fn attributes_of_the_pods_own_traces_stay() {
        let ours = [json!({"name": "POD", "value": "p"}), json!({"name": ATTRIBUTES, "value": "k8s.pod.name=$(POD)"})];
        let own = json!({"name": "OWN", "value": "1"});
        let theirs = [own.clone(), json!({"name": ATTRIBUTES, "value": "service.name=chat,own=$(OWN)"})];
        let made = with_variables(&theirs, &ours).unwrap();
        let joined = json!({"name": ATTRIBUTES, "value": "service.name=chat,own=$(OWN),k8s.pod.name=$(POD)"});
        assert_eq!(made, [ours[0].clone(), own, joined]);
        assert_eq!(with_variables(&made, &ours), None, "and once only");
        let elsewhere = json!({"name": ATTRIBUTES, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}});
        let made = with_variables(std::slice::from_ref(&elsewhere), &ours).unwrap();
        assert_eq!(made, [ours[0].clone(), elsewhere]);
        assert_eq!(with_variables(&[], &ours), Some(ours.to_vec()));
        let ours = [ours, [json!({"name": "LATER", "value": "1"}), json!({"name": "LAST", "value": "1"})]].concat();
        assert_eq!(with_variables(&ours, &ours), None, "also where the list is not the last of ours");
    }

    #[test]
    fn one_container_may_be_named() {
        let mut named = pod();
        named["metadata"]["annotations"][CONTAINER] = json!("proxy");
        let made = changed(&named);
        assert_eq!(made["spec"]["containers"][0], pod()["spec"]["containers"][0]);
        assert_eq!(names(&made["spec"]["containers"][1]["env"]), ["POD", "LISTENER"]);
    }

    #[test]
    fn the_listener_runs_as_the_user_of_the_server() {
        let mut own = pod();
        own["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 9});
        assert!(operations(&own, &addition()).unwrap_err().starts_with("its containers run as different users"));
        own["metadata"]["annotations"][CONTAINER] = json!("engine");
        assert_eq!(changed(&own)["spec"]["initContainers"][0]["securityContext"]["runAsUser"], 9);
        let mut unknown = pod();
        unknown["spec"]["securityContext"] = json!({});
        assert!(operations(&unknown, &addition()).unwrap_err().starts_with("container engine: its user is not known"));
        unknown["metadata"]["annotations"][USER] = json!("0");
        let made = changed(&unknown);
        let security = &made["spec"]["initContainers"][0]["securityContext"];
        assert_eq!(security, &json!({"runAsNonRoot": false, "runAsUser": 0}));
        unknown["metadata"]["annotations"][USER] = json!("root");
        let sentence = operations(&unknown, &addition()).unwrap_err();
        assert_eq!(sentence, "inference-logging.io/user=root: not the number of a user");
    }

    #[test]
    fn what_has_a_name_or_a_place_of_ours_is_named() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 5] = [
            (|pod| pod["spec"]["volumes"][0]["name"] = json!("queue"), "volume queue: the pod has another one"),
            (|pod| pod["spec"]["initContainers"] = json!([{"name": "listener"}]), "container listener: the pod has"),
            (|pod| pod["spec"]["containers"][0]["name"] = json!("listener"), "container listener: the pod has"),
            (
                |pod| pod["spec"]["containers"][1]["volumeMounts"][0]["mountPath"] = json!("/run/q"),
                "container proxy: mounts something else at /run/q",
            ),
            (|pod| pod["metadata"]["annotations"][CONTAINER] = json!("no"), "inference-logging.io/container=no: the"),
        ];
        for (change, sentence) in cases {
            let mut other = pod();
            change(&mut other);
            let said = operations(&other, &addition()).unwrap_err();
            assert!(said.starts_with(sentence), "{said}");
        }
    }

    #[test]
    fn a_misspelt_annotation_or_value_is_named() {
        for (annotation, value, sentence) in [
            (INJECT, "True", "inference-logging.io/inject=True: must be true or false"),
            (INJECT, "", "inference-logging.io/inject=: must be true or false"),
            (
                "inference-logging.io/contianer",
                "engine",
                "inference-logging.io/contianer: there is no such annotation;",
            ),
        ] {
            let mut other = pod();
            other["metadata"]["annotations"][annotation] = json!(value);
            assert!(operations(&other, &addition()).unwrap_err().starts_with(sentence), "{annotation}");
        }
        let mut other = pod();
        other["metadata"]["annotations"] = json!({"inference-logging.io/injekt": "true", "example.com/inject": "x"});
        assert!(operations(&other, &addition()).unwrap_err().starts_with("inference-logging.io/injekt: "));
        other["metadata"]["annotations"] = json!({"example.com/inject": "x"});
        assert_eq!(operations(&other, &addition()), Ok(Vec::new()));
    }

    #[test]
    fn a_pod_whose_containers_would_not_start_beside_the_listener_is_left_as_it_is() {
        let mut of_node = pod();
        of_node["spec"]["hostNetwork"] = json!(true);
        assert!(
            operations(&of_node, &addition()).unwrap_err().starts_with("hostNetwork: port 9464 of container listener")
        );
        let mut taken = pod();
        taken["spec"]["containers"][1]["ports"] = json!([{"containerPort": 80}, {"containerPort": 9464}]);
        let sentence = operations(&taken, &addition()).unwrap_err();
        assert_eq!(sentence, "container proxy: has a port that container listener needs, 9464");
        taken["spec"]["containers"][1]["ports"] = json!([{"containerPort": 80}]);
        assert_eq!(names(&changed(&taken)["spec"]["initContainers"]), ["listener"]);
        // A node's listener has no container and no port in the pod.
        let of_the_node = Addition::parse(r#"{"env":[{"name":"A","value":"1"}]}"#).unwrap();
        assert_eq!(operations(&of_node, &of_the_node).unwrap().len(), 2);
    }

    #[test]
    fn a_pod_of_no_shape_is_no_panic() {
        for spec in [json!(null), json!([]), json!({"containers": [1, "a"]}), json!({"containers": "a", "volumes": 1})]
        {
            let mut odd = pod();
            odd["spec"] = spec;
            let _ = operations(&odd, &addition());
        }
    }
}
