use super::*;

fn origin() -> Name {
    "example.com".parse().unwrap()
}

/// The wire form in hexadecimal digits, or why there is none.
fn wire(rtype: &str, text: &str) -> Result<String, String> {
    let rtype = type_code(rtype).unwrap();
    let words = words(text).map_err(|error| error.to_string())?;
    let wire = parse(rtype, &words, &origin()).map_err(|error| match error.word {
        Some(word) => format!("{word}: {error}"),
        None => error.to_string(),
    })?;
    assert_eq!(validate(rtype, &wire), Ok(()), "{text}");
    Ok(data_encoding::HEXLOWER.encode(&wire))
}

#[test]
fn each_type_has_an_example_that_reads_back() {
    assert!(layout::ALL.is_sorted_by(|one, other| one.rtype < other.rtype));
    for layout in layout::ALL {
        let name = type_name(layout.rtype);
        let rdata = parse(layout.rtype, &words(layout.example).unwrap(), &origin());
        let rdata = rdata.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(show(layout.rtype, &rdata), layout.example, "{name}");
    }
}
