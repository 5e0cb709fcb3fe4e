//! The resource of records: where its attributes come from, which of them counts, and what is refused.

use listen::settings::{Host, Resource, Role, Settings, of_environment};
use std::path::Path;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn host() -> Host {
    Host { name: "node-7".to_owned(), boot_id: "b".to_owned(), ..Host::default() }
}

fn resource(json: &str, environment: &[(&str, &str)]) -> Resource {
    of(json, environment, &host(), Role::Serves, "/q")
}

fn of(json: &str, environment: &[(&str, &str)], host: &Host, role: Role, directory: &str) -> Resource {
    let settings = Settings::from_json(json.as_bytes()).unwrap();
    settings.resource(role, Path::new(directory), host, |name| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn an_attribute_of_the_configuration_goes_before_the_environment_and_that_before_what_is_found() {
    let environment =
        [("OTEL_SERVICE_NAME", "by-name"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=by-list,host.name=h,a=1,b=2")];
    let found = resource(r#"{"resource": {"a": "configured"}}"#, &environment);
    let get = |name| found.get(name);
    assert_eq!((get("a"), get("b")), (Some("configured"), Some("2")));
    assert_eq!((get("service.name"), get("host.name")), (Some("by-name"), Some("h")));
    assert_eq!(resource("{}", &environment[1..]).get("service.name"), Some("by-list"));
    assert_eq!(resource(r#"{"service_name": "chat"}"#, &environment).get("service.name"), Some("chat"));
    assert_eq!(resource("{}", &[]).get("service.name"), Some("inference"));
    assert_eq!(resource("{}", &[]).get("host.name"), Some("node-7"));
}

#[test]
fn the_variable_is_percent_encoded_and_one_fault_discards_all_of_it() {
    let pairs = |text| of_environment(text).unwrap();
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(pairs(" a = x%2Cy%3D%20z , b=%C3%A9,"), [own("a", "x,y= z"), own("b", "é")]);
    assert_eq!(pairs("a=b=c"), [own("a", "b=c")], "the name ends at the first sign");
    for wrong in ["a", "a=%", "a=%4", "a=%zz", "a=%ff", "=b", "a=1,b"] {
        assert!(of_environment(wrong).unwrap_err().starts_with("OTEL_RESOURCE_ATTRIBUTES: "), "{wrong}");
    }
    let many: String = (0..65).map(|number| format!("a{number}=1,")).collect();
    assert!(of_environment(&many).unwrap_err().contains("65"));
    let found = resource("{}", &[("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=%")]);
    assert_eq!((found.get("a"), found.get("service.name")), (None, Some("inference")));
}

#[test]
fn more_attributes_than_there_may_be_are_refused_by_name_and_number() {
    let members: Vec<String> = (0..65).map(|number| format!("\"a{number}\": \"1\"")).collect();
    let refused = Settings::from_json(format!("{{\"resource\": {{{}}}}}", members.join(",")).as_bytes()).unwrap_err();
    assert_eq!(refused.to_string(), "resource: has 65 attributes, must be at most 64");
}

#[test]
fn the_container_is_found_by_control_group_or_mount_and_is_never_the_pods_sandbox_or_a_listeners() {
    let of_group = |text: &str| Host { cgroup: text.to_owned(), ..host() }.container_id();
    assert_eq!(of_group(&format!("12:pids:/docker/{ID}\n")).as_deref(), Some(ID));
    assert_eq!(of_group(&format!("0::/kubepods.slice/cri-containerd-{ID}.scope")).as_deref(), Some(ID));
    assert_eq!(of_group("0::/\n"), None);
    assert_eq!(of_group("0::/user.slice/user-1000.slice/session-2.scope"), None);
    let mount = |place: &str| Host {
        mounts: format!("652 634 259:1 /var/lib/{place}/{ID}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"),
        ..host()
    };
    assert_eq!(mount("docker/containers").container_id().as_deref(), Some(ID));
    assert_eq!(mount("containerd/io.containerd.grpc.v1.cri/sandboxes").container_id(), None);
    let role = |role| of("{}", &[], &mount("docker/containers"), role, "/q").get("container.id").map(str::to_owned);
    assert_eq!((role(Role::Serves).as_deref(), role(Role::OnlyListens)), (Some(ID), None));
}

#[test]
fn the_processes_of_one_queue_directory_are_one_instance_and_another_directory_is_another() {
    let instance = |host: &Host, directory: &str| {
        of("{}", &[], host, Role::Serves, directory).get("service.instance.id").unwrap().to_owned()
    };
    let own = instance(&host(), "/q");
    assert_eq!((own.len(), own.as_bytes()[14], instance(&host(), "/q")), (36, b'8', own.clone()));
    let others = [Host { name: "node-8".to_owned(), ..host() }, Host { boot_id: "c".to_owned(), ..host() }];
    assert!(instance(&host(), "/p") != own && others.iter().all(|other| instance(other, "/q") != own));
}

#[test]
fn the_member_of_a_line_is_json_whatever_the_values_are() {
    let member = resource(r#"{"resource": {"a": "quote \" and é"}}"#, &[]).member();
    let line: serde_json::Value = serde_json::from_str(&format!("{{\"n\":1{member}}}")).unwrap();
    assert_eq!(line["resource"]["a"], "quote \" and é");
    assert_eq!(Resource::default().member(), "");
}
