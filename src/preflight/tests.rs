//! Every judge, by what hosts answer: what it says and how bad that is.

use super::context::{CheckContext, CheckedHost};
use super::probe::Probe;
use super::probe_output::ProbeOutput;
use super::*;
use crate::inventory::{Inventory, InventorySource, RuntimeValues};
use crate::model::level::Level;
use crate::plan::facts::HostFacts;

#[test]
fn check_table_matches_name_list() {
    let names: Vec<&str> = ALL_CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names, CHECK_NAMES);
    assert!(ALL_CHECKS.iter().all(|check| !check.description.is_empty()));
    let mut areas: Vec<CheckArea> = ALL_CHECKS.iter().map(|check| check.area).collect();
    areas.dedup();
    assert_eq!(areas, CheckArea::ALL, "an area after the other");
}

#[test]
fn checks_page_documents_every_check_in_order() {
    let mut page = include_str!("../../docs/checks.md");
    for check in ALL_CHECKS.iter().chain([&super::smoke::CHECK]) {
        let row = format!("| `{}` | {} | {} | ", check.name, check.area.as_str(), check.description);
        let (_, rest) = page.split_once(&row).unwrap_or_else(|| panic!("docs/checks.md lacks, or has earlier: {row}"));
        page = rest;
    }
}

#[test]
fn checks_are_selected_by_name_and_area() {
    let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let names = |only: &[&str], skip: &[&str], skipped: &[&str]| -> Vec<&str> {
        let found = select_checks(&words(only), &words(skip), &words(skipped)).expect("names");
        found.iter().map(|check| check.name).collect()
    };
    assert_eq!(names(&[], &[], &[]).len(), ALL_CHECKS.len());
    assert_eq!(names(&["clock", "mtu"], &[], &[]), ["clock", "mtu"]);
    assert_eq!(names(&["files"], &["paths"], &["same"]), ["mounts", "mount-system", "mount-content", "mount-write"]);
    assert_eq!(names(&["same"], &[], &["same"]), ["same"], "asked for by its name");
    let error = select_checks(&words(&["gpu-idel"]), &[], &[]).expect_err("no such check");
    assert!(error.contains("unknown check `gpu-idel`") && error.contains("did you mean `gpu-idle`?"), "{error}");
}

pub(crate) const TEST_INVENTORY: &str = "name: a\nhosts:\n- { name: gpu01, address: 10.0.0.1 }\n- { name: gpu02, address: 10.0.0.2 }\n\
    - { name: gpu03, address: 10.0.0.3 }\n\
    container:\n  image: x\n  shm_size: 8g\n  mounts: ['/data:/data:ro', '/out:/out']\n\
    launch: { nproc_per_node: 2, command: [t.py] }\nchecks: { same: [uname -r], paths: [/models] }\n";

/// Facts and answers of a host that is in order.
fn healthy_host_output(n: usize) -> (String, String) {
    let facts = format!(
        "system Linux x86_64\nuser li\nrun_dir /r\naddress 10.0.0.{n} bond0\nconnection 1.1.1.1 5 10.0.0.{n} 22\n\
         gpu GPU 0: H100 (UUID: GPU-{n}0)\ngpu GPU 1: H100 (UUID: GPU-{n}1)\ndocker 24.0.7\nimage sha256:aaaaaaaaaaaaaaaa\n"
    );
    let ways = match n {
        1 => "way ephemeral>1 yes open\nway ephemeral>2 yes open\n",
        _ => "way given>0 yes open\nway ephemeral>0 yes open\n",
    };
    let reported = format!(
        "clock 0.1 1.0\ncpus 64\nmemory_MemTotal 1000000000\nmemory_MemAvailable 900000000\n\
         disk /r 4000000000 3000000000 1000000 900000\ndisk /out 4000000000 3000000000 0 0\nrun_dir_system xfs\nnic bond0 9000 up 200000\nport_range 32768 60999\n\
         hostname h{n}\nown_name 10.0.0.{n}\nroute 10.0.0.1 bond0 10.0.0.{n}\nib mlx5_0/1 ACTIVE InfiniBand 400_Gb/sec\n\
         gpu_fields index,uuid,name,driver_version,compute_cap,persistence_mode,ecc.mode.current,ecc.errors.uncorrected.volatile.total,mig.mode.current\n\
         gpu 0, GPU-0, NVIDIA H100, 550.54, 9.0, Enabled, Enabled, 0, Disabled\ngpu 1, GPU-1, NVIDIA H100, 550.54, 9.0, Enabled, Enabled, 0, Disabled\n\
         remap GPU-0, 0, 0\nkernel_log dmesg\nnvswitch yes\nfabric_manager active\n\
         docker_info cgroupfs|2|runc|/var/lib/docker|nvidia runc |name=seccomp,profile=builtin \ndocker_disk /var/lib/docker 4000000000 3000000000 1000000 900000\n\
         file 0 type directory\nfile 0 system xfs\nfile 0 content 3 sizes:aa\nfile 1 type directory\nfile 1 system nfs\n\
         file 2 type directory\nfile 2 system nfs\nfile 2 content 9 sizes:bb\nin2 a 1\n\
         version python 3.11.9\nversion torch 2.4.0\nversion nccl 2.20.5\ninside_gpus 2\ninside_nofile 1048576\ninside_memlock unlimited\n\
         inside_shm 8388608 8388608\ninside_user 0:0\nwrite 0 yes\nsame 0 0 ff 6.1\n{ways}"
    );
    (facts, reported)
}

/// Judges three hosts of which the third answers something else: `old` replaced by `new` in its facts and answers.
pub(crate) fn evaluate_with_changes(inventory: &str, name: &str, changes: &[(&str, &str)]) -> Vec<CheckResult> {
    evaluate_answering_hosts(inventory, name, changes, 3)
}

/// The third host's cell, where the answers that it changes are these.
pub(super) fn assert_third_host(inventory: &str, name: &str, changes: &[(&str, &str)], expected: (Level, &str)) {
    let found = evaluate_with_changes(inventory, name, changes);
    assert_eq!(found[2].level, expected.0, "{name} {changes:?}: {found:?}");
    assert!(found[2].message.contains(expected.1), "{name}: {:?} is not in {:?}", expected.1, found[2].message);
    assert!(expected.0 <= Level::Pass || !found[2].hint.is_empty(), "{name}: what to do?");
    assert!(found[..2].iter().all(|c| c.level <= Level::Pass), "{name} {changes:?}: {found:?}");
}

/// The same where only the first hosts answer.
fn evaluate_answering_hosts(inventory: &str, name: &str, changes: &[(&str, &str)], answering: usize) -> Vec<CheckResult> {
    let source = InventorySource { name: "i".to_owned(), text: inventory.to_owned() };
    let inventory = Inventory::load(&[source], &[]).expect("an inventory");
    let known = RuntimeValues {
        gpu_counts: vec![Some(2); 3],
        fabric_addresses: (1..4).map(|n| Some(format!("10.0.0.{n}"))).collect(),
        ..RuntimeValues::default()
    };
    let job = inventory.job(&known).expect("a job");
    let hosts: Vec<(HostFacts, ProbeOutput)> = (1..4)
        .map(|n| {
            let (mut facts, mut reported) = healthy_host_output(n);
            for (old, new) in changes.iter().filter(|_| n == 3) {
                assert!(facts.contains(old) || reported.contains(old), "no host says {old:?}");
                (facts, reported) = (facts.replace(old, new), reported.replace(old, new));
            }
            let mut answers = ProbeOutput::default();
            answers.push_text(&reported);
            for probe in [
                Probe::Clock,
                Probe::Host,
                Probe::Gpus,
                Probe::Docker,
                Probe::Files,
                Probe::Network,
                Probe::Connectivity,
                Probe::Environment,
            ] {
                answers.push_text(&format!("did {}", probe.as_str()));
            }
            (HostFacts::parse(&facts), answers)
        })
        .collect();
    let addresses: Vec<String> = known.fabric_addresses.iter().flatten().cloned().collect();
    let scene = CheckContext {
        inventory: &inventory,
        job: &job,
        hosts: checked_hosts(&inventory, &job, &hosts[..answering], &addresses),
        fabric_addresses: addresses.clone(),
        before_launch: false,
    };
    let check = ALL_CHECKS.iter().find(|check| check.name == name).expect("a check");
    let answers = evaluate_checks(&scene, std::slice::from_ref(check));
    answers[0].results.iter().map(|(_, cell)| cell.clone()).collect()
}

fn checked_hosts<'a>(
    inventory: &'a Inventory,
    job: &'a Job,
    answers: &'a [(HostFacts, ProbeOutput)],
    addresses: &'a [String],
) -> Vec<CheckedHost<'a>> {
    let host = |(index, (facts, probe_output)): (usize, &'a (HostFacts, ProbeOutput))| CheckedHost {
        index,
        host: &inventory.hosts[index],
        job_host: &job.hosts[index],
        facts,
        probe_output,
        fabric_address: addresses.get(index).map(String::as_str),
        has_live_run: false,
    };
    answers.iter().enumerate().map(host).collect()
}

#[test]
fn healthy_hosts_pass_every_check() {
    for check in ALL_CHECKS {
        let found = evaluate_with_changes(TEST_INVENTORY, check.name, &[]);
        assert!(found.iter().all(|c| c.level <= Level::Pass), "{}: {found:?}", check.name);
        let skipped = found.iter().all(|c| c.level == Level::Skipped);
        assert_eq!(skipped, matches!(check.name, "hostname"), "{}: {found:?}", check.name);
    }
}

#[test]
fn launch_does_what_the_inventory_asks_for() {
    let source = |text: &str| [InventorySource { name: "i".to_owned(), text: text.to_owned() }];
    for (text, has_same) in [(TEST_INVENTORY.to_owned(), true), (TEST_INVENTORY.replace("same: [uname -r], ", ""), false)] {
        let inventory = Inventory::load(&source(&text), &[]).expect("an inventory");
        let known = RuntimeValues { gpu_counts: vec![Some(2); 3], ..RuntimeValues::default() };
        let checks = launch_checks(&inventory.job(&known).expect("a job"));
        let names: Vec<&str> = checks.iter().map(|check| check.name).collect();
        assert_eq!((names.contains(&"same"), names.contains(&"image-versions")), (has_same, false));
        assert!(checks.iter().all(|check| !check.is_left_to_full()), "what `check` says of a finding");
    }
}

#[test]
fn hosts_are_compared_only_where_two_answer() {
    for check in ["gpu-model", "driver", "nccl-conf"] {
        let found = evaluate_answering_hosts(TEST_INVENTORY, check, &[], 1);
        assert_eq!(found, [CheckResult::skipped("no other host answered")], "{check}");
        assert!(evaluate_answering_hosts(TEST_INVENTORY, check, &[], 2).iter().all(|result| result.level == Level::Pass), "{check}");
    }
}

#[test]
fn inventory_settings_change_check_results() {
    use Level::{Fail, Pass, Warn};
    let cpu = TEST_INVENTORY.replace("  shm_size: 8g", "  shm_size: 64m\n  gpus: none");
    let named = TEST_INVENTORY.replace("name: gpu01, address: 10.0.0.1", "name: gpu01, address: 10.0.0.1, fabric_address: gpu01");
    let unequal = TEST_INVENTORY.replace("10.0.0.1 }", "10.0.0.1, gpus: 1 }").replace("nproc_per_node: 2,", "with: processes,");
    let twice = TEST_INVENTORY.replace("same: [uname -r]", "same: [uname -r, not-run]");
    for (inventory, name, changes, host, level, expected) in [
        (&cpu, "hostname", &[("own_name 10.0.0.3", "own_name 127.0.1.1")][..], 2, Warn, "h3 resolves to 127.0.1.1"),
        (&cpu, "gpu-idle", &[], 2, Level::Skipped, "no GPUs are used"),
        (
            &TEST_INVENTORY.replace("checks: {", "env: { GLOO_SOCKET_IFNAME: eth7 }\nchecks: {"),
            "nic",
            &[],
            2,
            Fail,
            "GLOO_SOCKET_IFNAME=eth7 matches none of bond0",
        ),
        (
            &TEST_INVENTORY.replace("'/out:/out'", "{ from: /out, to: /out, create: true }"),
            "mount-write",
            &[("file 1 type directory", "file 1 type missing")],
            2,
            Level::Skipped,
            "/out: its source is not there yet",
        ),
        (&TEST_INVENTORY.replace("checks: {", "env: { NCCL_SOCKET_IFNAME: bond }\nchecks: {"), "nic", &[], 2, Pass, "bond0"),
        (
            &TEST_INVENTORY.replace("checks: {", "checks: { max_clock_skew: 1s, "),
            "clock",
            &[("clock 0.1", "clock 1500")],
            2,
            Fail,
            "+1.50 s",
        ),
        (
            &TEST_INVENTORY.replace("nproc_per_node: 2,", "nproc_per_node: 2, master_port: 40000,"),
            "master-port",
            &[],
            0,
            Warn,
            "32768 to 60999",
        ),
        (&named, "nic", &[], 2, Pass, "bond0"),
        (&unequal, "nvidia-runtime", &[("inside_gpus 2", "inside_gpus 1")], 2, Fail, "1 of 2 GPUs are visible inside"),
        (&unequal, "cpus", &[("cpus 64", "cpus 1")], 2, Warn, "1 processor for 2 ranks"),
        (&twice, "same", &[("same 0 0 ff", "same 0 1 ff")], 2, Fail, "`uname -r` ends with 1"),
    ] {
        let found = evaluate_with_changes(inventory, name, changes);
        assert_eq!(found[host].level, level, "{name}: {found:?}");
        assert!(found[host].message.contains(expected), "{name}: {expected:?} is not in {:?}", found[host].message);
    }
}

#[test]
fn master_name_must_resolve_equally_everywhere() {
    let inventory =
        Inventory::load(&[InventorySource { name: "i".to_owned(), text: TEST_INVENTORY.to_owned() }], &[]).expect("an inventory");
    let job = inventory.job(&RuntimeValues { gpu_counts: vec![Some(2); 3], ..RuntimeValues::default() }).expect("a job");
    let run = |third: &str, first: &str| -> CheckResult {
        let answers: Vec<(HostFacts, ProbeOutput)> = (1..)
            .zip(["resolves gpu01 10.0.0.1", "resolves gpu01 10.0.0.1", third])
            .map(|(n, line)| {
                let mut reported = ProbeOutput::default();
                reported.push_text(&format!("{line}\ndid net"));
                (HostFacts::parse(&healthy_host_output(n).0), reported)
            })
            .collect();
        let addresses = vec![first.to_owned(), "10.0.0.2".to_owned(), "10.0.0.3".to_owned()];
        let hosts = checked_hosts(&inventory, &job, &answers, &addresses);
        let scene = CheckContext { inventory: &inventory, job: &job, hosts, fabric_addresses: addresses.clone(), before_launch: false };
        evaluate_checks(&scene, &[ALL_CHECKS.iter().find(|c| c.name == "master-address").copied().expect("it")])[0].results[2].1.clone()
    };
    for (third, first, level, expected) in [
        ("resolves gpu01 10.0.0.1", "gpu01", Level::Pass, "10.0.0.1"),
        ("resolves gpu01 127.0.1.1", "gpu01", Level::Fail, "gpu01 resolves to 127.0.1.1"),
        ("resolves gpu01 10.9.9.9", "gpu01", Level::Fail, "10.9.9.9 instead of gpu01 is 10.0.0.1"),
        ("resolves gpu01 ", "gpu01", Level::Fail, "gpu01 does not resolve"),
        ("x", "127.0.0.1", Level::Fail, "127.0.0.1 is a loopback address"),
        ("x", "10.0.0.1", Level::Pass, "10.0.0.1"),
    ] {
        let cell = run(third, first);
        assert!(cell.level == level && cell.message.contains(expected), "{third} {first}: {cell:?}");
    }
}

#[test]
fn incomplete_probe_output_is_skipped_and_bounded() {
    let mut reported = ProbeOutput::default();
    reported.set_missing_reason(Probe::Gpus, "no answer within 60s");
    assert_eq!((reported.is_complete(Probe::Gpus), reported.missing_reason(Probe::Gpus).as_str()), (false, "no answer within 60s"));
    reported.push_text("gpu_fields index,name\ngpu 0\ngpu 0, a, b\ngpu , ,\n\u{4e2d}\nclock x y\ndisk\n");
    assert_eq!(reported.gpu_rows().len(), 2);
    reported.push_text(&"x ".repeat(100_000));
    reported.push_text(&"k v\n".repeat(100_000));
    assert!(reported.values("k").len() <= 8192);
}
