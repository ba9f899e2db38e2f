"""The words that the contradiction rule knows, English and German, folded.

Invariant: data only; a changed list is a new ``VERSION`` of ``rules/contradiction``.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DROPPED: Final = _words(
    """the a an this that these those some do does did always also just please currently der die das den dem des ein
    eine einen einem einer eines dieser diese dieses auch bitte derzeit aktuell momentan immer"""
)
"""Say nothing that could contradict; ``always`` goes so that ``never`` stands against it."""
NEGATIONS: Final = _words("not no never neither nor none nicht kein keine keinen keinem keiner keines nie niemals")
UPDATES: Final = _words(
    """now nowadays anymore meanwhile since recently instead formerly previously changed moved switched migrated
    updated renamed upgraded downgraded increased decreased raised lowered reduced replaced corrected correction
    became become new newly jetzt nun inzwischen mittlerweile seit seitdem neuerdings stattdessen früher zuvor
    geändert verschoben umgestellt migriert aktualisiert umbenannt erhöht gesenkt reduziert ersetzt korrigiert
    korrektur wurde wurden neu neuer neue"""
)
"""Say that things changed: what comes later supersedes, it does not contradict."""
UPDATE_PHRASES: Final = (
    "no longer", "not any more", "as of", "used to", "from now on", "nicht mehr", "ab sofort", "kein mehr",
)  # fmt: skip
HEDGES: Final = _words(
    """maybe perhaps might possibly probably apparently presumably seems suspect guess vielleicht eventuell
    möglicherweise wahrscheinlich vermutlich anscheinend angeblich scheint"""
)
YET: Final = _words("yet still noch")
APPROXIMATE: Final = _words("about around roughly approximately circa ca etwa ungefähr rund fast nearly almost knapp")
COPULAS: Final = _words("is are be equals : = ist sind lautet lauten heißt beträgt betragen")
PREPOSITIONS: Final = _words("in on at by to with from as called named set im am bei auf von an mit zu als")
LABELS: Final = _words(
    """note notes error warning info todo summary question answer decision update status state result results outcome
    finding log message progress reason cause example fyi health mood ps re notiz hinweis fehler warnung frage
    antwort entscheidung zusammenfassung ergebnis grund ursache beispiel zustand stand fortschritt meldung"""
)
"""Left of a colon these head a text and name no attribute; status and its kin change all the time."""
ATTRIBUTES: Final = _words(
    """owner lead leader maintainer manager reviewer approver assignee contact author responsible region zone location
    host hostname server address url endpoint domain port version branch database db engine backend broker
    language framework library runtime default format encoding timezone currency deadline name alias email phone
    channel room office city country title role team key algorithm protocol provider vendor licence license
    model plan tier priority colour color password username account path directory bucket queue topic table
    column schedule frequency day primary leader besitzer besitzerin eigentümer eigentümerin verantwortlicher
    verantwortliche zuständig zuständige leiter leiterin ansprechpartner ansprechpartnerin standort rechner
    adresse datenbank sprache standard zeitzone währung frist termin kanal raum büro stadt land titel rolle
    schlüssel verfahren protokoll anbieter lizenz modell priorität farbe passwort benutzer konto pfad
    verzeichnis tabelle spalte zweig"""
)
"""Nouns whose value is one at a time: of two different ones one is wrong."""
PLACES: Final = (
    "run on", "listen on", "hosted in", "hosted on", "hosted by", "live in", "located in", "stored in", "owned by",
    "maintained by", "managed by", "led by", "written in", "based in", "belong to", "report to", "default to",
    "läuft auf", "lauscht auf", "gehostet in", "gehostet bei", "gespeichert in", "geschrieben in", "betreut von",
    "geleitet von", "verantwortet von", "gehört zu", "liegt in",
)  # fmt: skip
"""Verb and preposition (stemmed) after which stands one value."""
FUNCTIONS: Final = (
    "own", "lead", "maintain", "is responsible for", "is owner of", "is in charge of", "is on call for",
    "besitzt", "leitet", "verantwortet", "betreut", "ist verantwortlich für", "ist zuständig für",
)  # fmt: skip
"""What one subject at a time does."""
ENTITIES: Final = _words(
    """# no nr number id run build attempt try retry step pr issue ticket job task mission request order invoice shard
    replica node worker host server page chapter iteration episode round sprint day week month quarter test case
    phase part section line row item user customer account incident migration release batch chunk epoch wave
    slot lane room gate level tier agent crew team option scenario question rule figure table commit partition
    container pod machine lauf versuch schritt aufgabe auftrag anfrage rechnung seite kapitel runde tag woche
    monat fall teil abschnitt zeile nummer kunde konto vorfall stufe ebene frage regel maschine knoten"""
)
"""Before a number these make it a name: another number is another thing, not another value."""
STABLE: Final = _words(
    """limit threshold timeout maximum max minimum min quota budget cap target slo sla interval ttl default retention
    size capacity price fee port version deadline replica replicas factor window allowed permitted ceiling floor
    grenze grenzwert schwelle schwellwert höchstens mindestens kontingent ziel intervall standard aufbewahrung
    größe kapazität preis gebühr frist faktor fenster erlaubt zulässig"""
)
"""What somebody has set: two values of it contradict."""
VOLATILE: Final = _words(
    """cpu load latency usage utilisation utilization memory ram disk queue lag backlog temperature rate throughput
    traffic error errors warnings failures requests count duration elapsed uptime age cost costs spent balance
    pending open left remaining depth progress entries rows records documents items messages tokens users
    customers score p50 p95 p99 auslastung last latenz speicher warteschlange rückstand temperatur durchsatz
    fehler anfragen anzahl dauer laufzeit alter kosten ausgegeben offen verbleibend fortschritt"""
)
"""What is measured again and again: another value is another moment."""
EVENTS: Final = _words(
    """failed finished completed deployed processed imported exported received sent retried restarted took crashed ran
    saw found fixed merged rolled started stopped ended passed succeeded timed returned wrote logged created
    deleted removed added closed opened resolved escalated denied approved rejected granted spent used cost
    handled answered asked tried measured observed reached hit dropped takes take out released published shipped
    tagged announced lost skipped indexed built ate slept met called visited bought paid went fehlgeschlagen
    abgeschlossen fertig ausgerollt verarbeitet importiert exportiert empfangen gesendet wiederholt gestartet
    neugestartet dauerte gedauert abgestürzt gefunden behoben beendet bestanden geschrieben gelesen gelöscht
    entfernt hinzugefügt geschlossen geöffnet gelöst eskaliert abgelehnt genehmigt gemessen beobachtet erreicht"""
)
"""What happened: it may happen again, otherwise."""
HOLDING: Final = _words(
    """every within alle innerhalb has have need needs require requires last lasts keep keeps kept allow allows hold
    holds store stores retain retains above below over under than up hat haben braucht brauchen benötigt dauert
    hält behält erlaubt speichert über unter"""
)
"""Verbs of what is so, and bounds: a number beside one of these is not just counted."""
SCHEDULES: Final = _words(
    """is are due scheduled deadline expires expire start starts begin begins planned until by opens open closes close
    release ends end every daily weekly ist sind fällig geplant frist termin beginnt startet endet bis ab
    täglich wöchentlich läuft : ="""
)
"""A date or time beside one of these is set, not just when something was written."""
OPPOSITES: Final = frozenset(
    frozenset(pair.split("/"))
    for pair in _words(
        """enabled/disabled enable/disable allowed/forbidden allowed/disallowed allowed/prohibited permitted/prohibited
    required/optional mandatory/optional true/false yes/no on/off public/private synchronous/asynchronous
    before/after more/less include/exclude accept/reject internal/external mutable/immutable minimum/maximum
    min/max blocking/nonblocking manual/automatic manually/automatically aktiviert/deaktiviert erlaubt/verboten
    eingeschaltet/ausgeschaltet öffentlich/privat erforderlich/optional wahr/falsch ja/nein intern/extern
    vor/nach mehr/weniger manuell/automatisch synchron/asynchron nötig/unnötig"""
    )
)
MOMENTARY: Final = _words(
    "available reachable healthy stable responsive known able changed resolved verfügbar erreichbar gesund stabil bekannt"
)
"""States of the moment: their opposites follow each other."""
ALIASES: Final = {
    "postgresql": "postgres", "k8s": "kubernetes", "prod": "production", "db": "database", "js": "javascript",
    "ts": "typescript", "max": "maximum", "min": "minimum", "config": "configuration", "colour": "color",
}  # fmt: skip
NUMERALS: Final = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10,
    "elf": 11, "zwölf": 12,
}  # fmt: skip
MONTHS: Final = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "januar|februar|märz|mai|juni|juli|oktober|dezember|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|okt|nov|dec|dez"
)
WEEKDAYS: Final = _words(
    """monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays montag
    dienstag mittwoch donnerstag freitag samstag sonntag montags dienstags mittwochs donnerstags freitags"""
)
UNITS: Final[dict[str, tuple[str, float]]] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "millisekunden"), ("time", 0.001)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sekunde", "sekunden"), ("time", 1.0)),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "minuten"), ("time", 60.0)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "stunde", "stunden", "std"), ("time", 3600.0)),
    **dict.fromkeys(("d", "day", "days", "tag", "tage", "tagen"), ("time", 86400.0)),
    **dict.fromkeys(("week", "weeks", "woche", "wochen"), ("time", 604800.0)),
    **dict.fromkeys(("b", "byte", "bytes"), ("bytes", 1.0)),
    **dict.fromkeys(("kb", "kilobyte", "kilobytes"), ("bytes", 1000.0)),
    **dict.fromkeys(("mb", "megabyte", "megabytes"), ("bytes", 1000000.0)),
    **dict.fromkeys(("gb", "gigabyte", "gigabytes"), ("bytes", 1000000000.0)),
    **dict.fromkeys(("tb", "terabyte", "terabytes"), ("bytes", 1000000000000.0)),
    **dict.fromkeys(("kib",), ("bytes", 2.0**10)),
    **dict.fromkeys(("mib",), ("bytes", 2.0**20)),
    **dict.fromkeys(("gib",), ("bytes", 2.0**30)),
    **dict.fromkeys(("%", "percent", "prozent"), ("share", 1.0)),
    **dict.fromkeys(("€", "eur", "euro", "euros"), ("euro", 1.0)),
    **dict.fromkeys(("$", "usd", "dollar", "dollars"), ("dollar", 1.0)),
    **dict.fromkeys(("m", "metre", "metres", "meter"), ("length", 1.0)),
    **dict.fromkeys(("km", "kilometre", "kilometer"), ("length", 1000.0)),
}
"""Unit → what it measures, and how many of its base."""
