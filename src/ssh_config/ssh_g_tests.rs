//! What we decide is what `ssh -G` decides: on generated files, and on those of `tests/data/ssh_config`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};

use super::config_files;
use super::config_strategies::{ALIASES, config_text, included_text};
use super::resolve::{HostQuery, MatchResult, resolve_host};
use super::{JumpHost, PercentTokens, SettingOrigin, SshOptions, keywords};
use crate::ssh_config::EnvLookup;

/// How many generated files are compared, each for three names; more with the variable.
const DEFAULT_CASES: u32 = 100;
const CASES_VARIABLE: &str = "ORCHESTRATE_SSH_CONFIG_CASES";

/// Says something that a test run shows even where all went well.
fn print_stderr(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("a stderr");
}

/// Whether there is an ssh program; without one the test prints the reason, and fails on CI.
fn has_ssh() -> bool {
    let there = Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_ok();
    assert!(there || std::env::var_os("CI").is_none(), "CI has no ssh program");
    if !there {
        print_stderr("not compared with ssh -G: there is no ssh program");
    }
    there
}

/// The local user and the host that is looked up.
#[derive(Debug, Clone)]
struct SshQuery<'a> {
    config: &'a Path,
    alias: &'a str,
    user: Option<&'a str>,
}

/// What `ssh -G` says, or the lines that it refuses.
fn ssh_g_options(query: &SshQuery<'_>) -> Result<SshOptions, String> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-G").arg("-F").arg(query.config).env("ORCH_TEST_DIR", "/keys").stdin(Stdio::null());
    if let Some(user) = query.user {
        ssh.arg("-l").arg(user);
    }
    let out = ssh.arg("--").arg(query.alias).output().expect("ssh runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() { Ok(SshOptions::parse_ssh_g(&text(&out.stdout))) } else { Err(text(&out.stderr)) }
}

/// The user that ssh sees, and ssh's home directory.
struct LocalUser {
    home: PathBuf,
    user: String,
}

fn local_user() -> LocalUser {
    let me = nix::unistd::User::from_uid(nix::unistd::getuid()).expect("readable").expect("a user");
    LocalUser { home: me.dir, user: me.name }
}

fn our_result(me: &LocalUser, query: &SshQuery<'_>) -> MatchResult {
    let sources = match config_files::read_config_files(Some(query.config), &me.home) {
        Ok(sources) => sources,
        Err(what) => return MatchResult::Invalid(vec![what]),
    };
    let mut preset = SshOptions::default();
    if let Some(user) = query.user {
        preset.set("User", user, &SettingOrigin::Inventory);
    }
    resolve_host(&sources, HostQuery { alias: query.alias, local_user: &me.user }, preset)
}

/// An algorithm list with `+`, `-` or `^` before it, put together with the standard list.
fn expand_algorithm_list(standard: &str, text: &str) -> String {
    let split = |list: &str| list.split(',').map(str::to_owned).collect::<Vec<_>>();
    let (sign, names) = text.split_at(text.find(|c| !matches!(c, '+' | '-' | '^')).unwrap_or(0));
    let (names, standard) = (split(names), split(standard));
    let less = |a: &[String], b: &[String]| a.iter().filter(|n| !b.contains(n)).cloned().collect::<Vec<_>>();
    match sign {
        "+" => [standard.clone(), less(&names, &standard)].concat().join(","),
        "-" => less(&standard, &names).join(","),
        "^" => [names.clone(), less(&standard, &names)].concat().join(","),
        _ => text.to_owned(),
    }
}

/// The settings in the form in which `ssh -G` prints them; those that are not set come from `unset`, what ssh says with no file at all.
fn as_ssh_g_prints(me: &LocalUser, alias: &str, options: &SshOptions, unset: &SshOptions) -> BTreeMap<String, String> {
    let text = |o: &SshOptions, name: &str| {
        o.iter().find(|(n, _)| *n == name).map(|(_, v)| v.iter().map(|v| &*v.text).collect::<Vec<_>>().join(" "))
    };
    let by_default = |name: &str| options.first_value(name).is_some_and(|v| v.origin == SettingOrigin::Default);
    let set = |name: &str| text(options, name).filter(|t| !t.is_empty() && (name == "HostName" || !by_default(name)));
    let variables: EnvLookup = Arc::new(|name| (name == "ORCH_TEST_DIR").then(|| "/keys".to_owned()));
    let host = set("HostName").unwrap_or_else(|| alias.to_owned());
    let user = set("User").unwrap_or_else(|| me.user.clone());
    let key_name = set("HostKeyAlias").map_or_else(|| alias.to_owned(), |name| name.to_ascii_lowercase());
    let tokens = PercentTokens {
        host: &host,
        alias,
        host_key_name: &key_name,
        port: set("Port").map_or(22, |p| p.parse().expect("a port")),
        user: &user,
        jump_host: "",
        local_user: &me.user,
        home: &me.home,
        uid: rustix::process::getuid().as_raw(),
        env: &variables,
    };
    let path = |text: &str| tokens.expand_path(text).map_or_else(|what| what, |p| p.display().to_string());
    let mut all = BTreeMap::new();
    for name in keywords::keyword_names() {
        let standard = || text(unset, name);
        let value = match name {
            "CASignatureAlgorithms" | "Ciphers" | "HostKeyAlgorithms" | "KexAlgorithms" | "MACs" | "PubkeyAcceptedAlgorithms" => {
                set(name).map(|t| expand_algorithm_list(&standard().unwrap_or_default(), &t))
            }
            // With a jump host ssh prints `no`, regardless of the file.
            "ProxyUseFdpass" if set("ProxyJump").is_some_and(|j| j != "none") => Some("no".to_owned()),
            "HostKeyAlias" => set(name).map(|t| t.to_ascii_lowercase()),
            "IdentityAgent" => set(name).map(|t| path(&t)),
            "UserKnownHostsFile" => {
                let paths = options.values(name).map(|v| path(&v.text)).collect::<Vec<_>>();
                set(name).map(|t| if t == "none" { t } else { paths.join(" ") })
            }
            "ProxyJump" => set(name).map(|t| if t == "none" { t } else { format!("{:?}", JumpHost::parse_list(&t)) }),
            _ => set(name),
        };
        // ssh does not print every keyword that says `none`.
        let value = value.map_or_else(standard, Some).filter(|v| v != "none");
        all.extend(value.map(|v| (name.to_owned(), v)));
    }
    all
}

/// Compares the two. `Ok(false)`: it is ssh's to decide, and was not compared.
fn compare_with_ssh(me: &LocalUser, query: &SshQuery<'_>, unset: &SshOptions) -> Result<bool, String> {
    let theirs = ssh_g_options(query);
    match (our_result(me, query), theirs) {
        (MatchResult::NeedsSsh(..), _) => Ok(false),
        (MatchResult::Resolved(ours), Ok(theirs)) => {
            let (ours, theirs) =
                (as_ssh_g_prints(me, query.alias, &ours, unset), as_ssh_g_prints(me, query.alias, &theirs, &SshOptions::default()));
            // With BatchMode, Debian's ssh has a keepalive of its own where none is named.
            let debian = |n: &str| n == "ServerAliveInterval" && theirs.get(n).is_some_and(|v| v == "300");
            let apart: Vec<String> = keywords::keyword_names()
                .filter(|n| ours.get(*n) != theirs.get(*n) && !debian(n))
                .map(|n| format!("{n}: ours {:?}, ssh {:?}", ours.get(n), theirs.get(n)))
                .collect();
            if apart.is_empty() { Ok(true) } else { Err(format!("{}: {}", query.alias, apart.join("\n"))) }
        }
        (MatchResult::Invalid(ours), Err(theirs)) => {
            // Every line that ssh names, we name.
            let named = |l: &str| {
                let (file, rest) = l.split_once(" line ").or_else(|| l.split_once(": line "))?;
                let line: usize = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
                Some(format!("{}:{line}: ", file.trim_end_matches(':')))
            };
            let missing: Vec<String> = theirs
                .lines()
                .filter(|l| !l.contains("Unsupported option"))
                .filter_map(named)
                .filter(|place| !ours.iter().any(|o| o.starts_with(place)))
                .collect();
            if missing.is_empty() { Ok(true) } else { Err(format!("{}: not named: {missing:?}\nours {ours:?}\nssh {theirs}", query.alias)) }
        }
        (MatchResult::Invalid(ours), Ok(_)) => Err(format!("{}: only we refuse it: {ours:?}", query.alias)),
        (MatchResult::Resolved(_), Err(theirs)) => Err(format!("{}: only ssh refuses it: {theirs}", query.alias)),
    }
}

fn ssh_defaults(me: &LocalUser, alias: &str) -> SshOptions {
    let mut options = ssh_g_options(&SshQuery { config: Path::new("none"), alias, user: None }).expect("ssh without a file");
    options.set("User", &me.user, &SettingOrigin::Default);
    options
}

#[test]
fn generated_configs_match_ssh_g() {
    if !has_ssh() {
        return;
    }
    let me = local_user();
    let unset: BTreeMap<&str, SshOptions> = ALIASES.iter().map(|a| (*a, ssh_defaults(&me, a))).collect();
    let cases = std::env::var(CASES_VARIABLE).ok().map_or(DEFAULT_CASES, |n| n.parse().expect("a number"));
    let persistence = FileFailurePersistence::SourceParallel("proptest-regressions");
    let config = Config {
        cases,
        failure_persistence: Some(Box::new(persistence)),
        source_file: Some(file!()),
        max_shrink_iters: 400,
        ..Config::default()
    };
    let dir = tempfile::tempdir().expect("a folder");
    let counted = std::cell::Cell::new((0_u32, 0_u32));
    let files = prop_oneof![
        3 => (config_text(24, false), included_text(false), included_text(false)),
        1 => (config_text(10, true), included_text(true), included_text(false)),
    ];
    let query = prop::sample::subsequence(ALIASES.to_vec(), 3);
    let user = prop::option::weighted(0.3, prop::sample::select(&["root", "li"][..]));
    let run = TestRunner::new(config).run(&(files, query, user), |((main, a, b), aliases, user)| {
        let place = dir.path().display().to_string();
        for (name, text) in [("config", &main), ("a.conf", &a), ("b.conf", &b)] {
            std::fs::write(dir.path().join(name), text.replace("@DIR@", &place)).expect("written");
        }
        for alias in aliases {
            let query = SshQuery { config: &dir.path().join("config"), alias, user };
            let compared = compare_with_ssh(&me, &query, &unset[alias]).map_err(TestCaseError::fail)?;
            let wrong = matches!(our_result(&me, &query), MatchResult::Invalid(_));
            assert!(compared, "nothing in these files is ssh's alone to decide");
            let (refused, equal) = counted.get();
            counted.set(if wrong { (refused + 1, equal) } else { (refused, equal + 1) });
        }
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    let (refused, equal) = counted.get();
    print_stderr(&format!(
        "ssh_config: {} comparisons with ssh -G: {equal} equal in every keyword, {refused} refused by both",
        equal + refused
    ));
    assert!(equal > refused, "most generated files are to be read");
}

/// A copy of the folder of files as they are met, with the places of their Includes filled in.
fn copy_sample_configs() -> (tempfile::TempDir, Vec<(String, String)>) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut expected = Vec::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ssh_config");
    for entry in std::fs::read_dir(from).expect("the folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("readable");
        match name.strip_suffix(".expected") {
            Some(file) => expected.push((file.to_owned(), text)),
            None => std::fs::write(dir.path().join(name), text.replace("@DIR@", &dir.path().display().to_string())).expect("written"),
        }
    }
    expected.sort();
    (dir, expected)
}

/// Every value that was set, with its location.
fn values_with_origins(options: &SshOptions, dir: &Path) -> String {
    let names = keywords::keyword_names().flat_map(|name| options.iter().filter(move |(n, _)| *n == name));
    let values = names.flat_map(|(name, values)| values.iter().map(move |v| (name, v))).filter(|(_, v)| v.origin != SettingOrigin::Default);
    values.map(|(name, v)| format!("  {name} {} ({})\n", v.text, v.origin).replace(&format!("{}/", dir.display()), "")).collect()
}

#[test]
fn sample_configs_match_expected_and_ssh_g() {
    let (dir, expected) = copy_sample_configs();
    let (me, with_ssh) = (local_user(), has_ssh());
    let mut compared = 0;
    assert!(expected.len() > 9, "the folder was found");
    for (file, expected) in &expected {
        let config = dir.path().join(format!("{file}.conf"));
        let mut found = String::new();
        for host in expected.lines().filter(|line| !line.starts_with(' ')) {
            let (user, alias) = host.rsplit_once('@').map_or((None, host), |(user, alias)| (Some(user), alias));
            let query = SshQuery { config: &config, alias, user };
            let MatchResult::Resolved(options) = our_result(&me, &query) else { panic!("{file} {host}: {:?}", our_result(&me, &query)) };
            found.push_str(&format!("{host}\n{}", values_with_origins(&options, dir.path())));
            if with_ssh {
                assert_eq!(compare_with_ssh(&me, &query, &ssh_defaults(&me, alias)), Ok(true), "{file} {host}");
                compared += 1;
            }
        }
        assert_eq!(found, *expected, "{file}:\n{found}");
    }
    print_stderr(&format!("ssh_config: {compared} hosts of {} files as they are met compared with ssh -G", expected.len()));
}

/// `cargo test --lib -- --ignored --nocapture bench_1024` prints it; what a machine takes is no matter of right and wrong.
#[test]
#[ignore = "a measurement"]
fn bench_1024_hosts_against_500_lines() {
    let dir = tempfile::tempdir().expect("a folder");
    let block =
        |i: usize| format!("Host gpu{i:03}-* rack{i}.example\n  HostName %h.corp\n  User u{i}\n  IdentityFile ~/.ssh/k{i}\n  Port 22\n");
    let config = dir.path().join("config");
    std::fs::write(&config, (0..100).map(block).collect::<String>()).expect("written");
    let me = local_user();
    let begin = std::time::Instant::now();
    let sources = config_files::read_config_files(Some(&config), &me.home).expect("readable");
    let read = begin.elapsed();
    for host in 0..1024 {
        let alias = format!("gpu{:03}-{host}", host % 128);
        let outcome = resolve_host(&sources, HostQuery { alias: &alias, local_user: &me.user }, SshOptions::default());
        assert!(matches!(outcome, MatchResult::Resolved(_)));
    }
    print_stderr(&format!("ssh_config: 500 lines read in {read:?}, 1024 hosts settled in {:?}", begin.elapsed()));
}
