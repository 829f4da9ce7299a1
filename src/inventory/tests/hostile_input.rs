//! Malformed inventories: too long, too deep, truncated anywhere, or with arbitrary characters.

use proptest::prelude::*;

use super::*;

#[test]
fn oversized_inventories_are_rejected() {
    let many = format!("name: a\nhosts: [gpu01]\nvars: {{ v: [{}] }}\n", "x,".repeat(60_000));
    assert!(load_problems(&many).contains("more than 50000 values"));
    let long = format!("name: a\n# {}\n", "x".repeat(1 << 20));
    assert!(load_problems(&long).contains("an inventory may have at most"));
    let merges = format!("name: a\nvars: {}x{}\n", "{ <<: ".repeat(500), " }".repeat(500));
    assert!(load_problems(&merges).contains("nested deeper"));
    let chain: String = (0..5000).map(|i| format!("  v{i}: '{{{{ v{} }}}}'\n", i + 1)).collect();
    assert!(
        load_problems(&format!("name: a\nhosts: [g]\nlaunch: {{ command: [a] }}\nvars:\n{chain}  v5000: 1\n")).contains("nested more than")
    );
    let doubling: String = (1..30).map(|i| format!("  v{i}: '{{{{ v{0} }}}}{{{{ v{0} }}}}'\n", i - 1)).collect();
    let doubling = format!("name: a\nhosts: [g]\nlaunch: {{ command: [a] }}\nvars:\n  v0: {}\n{doubling}", "x".repeat(100));
    assert!(load_problems(&doubling).contains("the template's result exceeds 1 MiB"), "{}", load_problems(&doubling));
}

#[test]
fn expression_memory_is_bounded() {
    let refused = |expression: &str| {
        load_problems(&format!("name: a\nvars: {{ v: {:?} }}\nhosts: [g]\nlaunch: {{ command: [a] }}", format!("{{{{ {expression} }}}}")))
    };
    for (expression, why) in [
        ("'x' * 10000000000", "repeated string is too large"),
        ("'x' * 90000000", "its result exceeds 1048576 bytes"),
        ("range(100000)|join('x' * 100000)", "its result exceeds 1048576 bytes"),
        ("('x' * 100000)|replace('x', 'x' * 100000)", "its result exceeds 1048576 bytes"),
        ("range(10000000000)", "cannot be evaluated"),
        ("range(90000)", "its result exceeds 10000 values"),
        ("9 ** 9 ** 9 ** 9", "cannot be evaluated"),
        ("'%99999999s'|format(1)", "filter format is unknown"),
    ] {
        let problems = refused(expression);
        assert!(problems.contains(why), "{expression}: {problems}");
    }
    assert!(refused(&"(".repeat(1900)).contains("is not an expression"));
    assert!(refused(&"1+".repeat(1900)).contains("longer than 2000 bytes"));
}

#[test]
fn inventory_with_256_hosts_loads() {
    let mut text = "name: a\nvars: { size: '{{ world_size }}' }\nhosts: [{ name: 'gpu[001-256]', gpus: 8, address: '10.0.0.[0-255]' }]\n\
        container: { image: x, mounts: ['/d/{{ host.name }}:/d'] }\nenv: { H: '{{ host.name }}' }\nconstraints: [size == 2048]\nlaunch:\n  command:\n  - a.py\n"
        .to_owned();
    text.extend((0..40).map(|i| format!("  - --a{i}={{{{ size + host.rank }}}}\n")));
    let inventory = load(&text);
    let job = inventory.job(&runtime_values(&inventory, 8)).expect("a job");
    assert_eq!(command_words(&job.hosts[255]).last(), Some(&"--a39=2303"));
}

fn yaml_fragment() -> impl Strategy<Value = String> {
    let known = [schema::ROOT_SCHEMA, schema::LAUNCH_SCHEMA, schema::CONTAINER_SCHEMA, schema::SSH_SCHEMA];
    let mut words: Vec<String> = known.iter().flat_map(schema::KeySchema::keys).map(|key| format!("{key}: ")).collect();
    let more = [
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "'",
        "\"",
        "|\n",
        "{{ ",
        " }}",
        "world_size",
        "host.name",
        "gpu[01-03]",
        "1",
        "-1",
        "~",
        "é",
        "\t",
        "#",
        "\\",
        "---\n",
        "\u{feff}",
        "\r\n",
        "? ",
        "%",
        "name: a\n",
        "hosts: [g]\n",
        " // ",
        "|",
        "0x",
        "1e999",
    ];
    words.extend(more.map(str::to_owned));
    prop::collection::vec(prop::sample::select(words), 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in yaml_fragment(), any in "\\PC{0,60}", at in 0_usize..400) {
        let texts = [text.clone(), any.clone(), format!("{MINIMAL}{text}"), {
            let mut whole = config_source("wan22.yaml").text;
            let at = (0..=at).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
            whole.insert_str(at, &text);
            whole
        }];
        for text in texts {
            if let Ok(inventory) = Inventory::load(&[text_source(&text)], &[any.clone(), format!("env.A={any}")]) {
                drop(inventory.fingerprint_text(0));
            }
            drop(Inventory::load_connection(&[text_source(&text)], &[]));
        }
    }

    /// Any text that another program wrote as YAML reaches the job unchanged.
    #[test]
    fn arguments_and_variables_round_trip(words in prop::collection::vec("[^\0]{0,20}", 1..5), line in "(\\PC|\n|\t|[ '\"$\\\\{}#:&*!|>%@`-]){0,30}") {
        prop_assume!(!line.contains('\0'));
        let meant = |text: &str| text.replace("{{", "{{ '{{' }}");
        let all: Vec<String> = words.iter().chain([&line]).cloned().collect();
        let file = serde_json::json!({
            "name": "a", "hosts": ["gpu01"], "env": { "LINE": meant(&line) },
            "launch": { "with": "script", "command": all.iter().map(|word| meant(word)).collect::<Vec<_>>() },
        });
        // The writer breaks lines at them, as YAML 1.1 has it; in YAML 1.2 they are characters like others.
        let breaks_lines = all.iter().any(|word| word.contains(['\u{85}', '\u{2028}', '\u{2029}']));
        let written = (!breaks_lines).then(|| yaml_parser::write_yaml(&file));
        for text in written.into_iter().chain([file.to_string()]) {
            let inventory = load(&text);
            let job = inventory.job(&runtime_values(&inventory, 1)).expect("a job");
            prop_assert_eq!(job_words(&job), all.clone());
            prop_assert_eq!(&job.hosts[0].env["LINE"], &line);
        }
    }
}

fn job_words(job: &Job) -> Vec<String> {
    command_words(&job.hosts[0]).into_iter().map(str::to_owned).collect()
}
