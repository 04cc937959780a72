"""Names and words that generated facts are made of; answers are common words of one token each."""

CITIES: tuple[str, ...] = tuple(
    """
    Oslo Paris London Berlin Madrid Rome Vienna Prague Warsaw Athens Lisbon Dublin Helsinki Stockholm
    Copenhagen Brussels Amsterdam Budapest Zurich Geneva Milan Naples Venice Florence Turin Munich
    Hamburg Cologne Frankfurt Barcelona Seville Valencia Porto Lyon Marseille Glasgow Edinburgh
    Liverpool Manchester Birmingham Bristol Oxford Cambridge Boston Chicago Denver Seattle Portland
    Houston Dallas Austin Phoenix Atlanta Miami Detroit Cleveland Pittsburgh Baltimore Montreal Toronto
    Vancouver Ottawa Calgary Havana Lima Bogota Santiago Cairo Nairobi Lagos Tunis Casablanca Istanbul
    Ankara Jerusalem Beirut Damascus Baghdad Tehran Karachi Delhi Mumbai Calcutta Bangkok Hanoi Manila
    Jakarta Singapore Tokyo Osaka Kyoto Seoul Beijing Shanghai Taipei Sydney Melbourne Perth Auckland
    Wellington Moscow Kiev Riga Tallinn Sofia Belgrade Zagreb
    """.split()
)

WORDS: tuple[str, ...] = tuple(
    """
    maple cedar willow oak pine birch lemon apple peach plum cherry grape banana mango onion
    garlic pepper ginger honey sugar butter cheese bread coffee cocoa salt rice wheat corn bean potato
    tomato carrot tiger lion wolf bear fox rabbit horse goat sheep camel monkey elephant whale shark
    dolphin turtle frog snake spider eagle owl hawk sparrow duck goose crow pigeon
    parrot salmon trout crab lobster oyster coral river lake ocean island mountain valley forest
    desert meadow garden canyon glacier volcano beach harbor bridge castle tower palace temple church
    chapel cottage farm barn mill market museum library theater school hospital prison kitchen window
    door chimney roof ceiling carpet curtain pillow blanket mirror candle lantern lamp hammer nail
    needle thread button ribbon basket bottle bucket barrel kettle spoon fork knife plate bowl cup
    piano violin guitar drum flute trumpet bell whistle pencil paper letter envelope stamp coin purse
    jacket coat shirt hat glove boot shoe sock belt silver copper iron marble diamond pearl ruby
    amber velvet cotton silk wool leather thunder lightning rain snow storm cloud rainbow winter
    summer autumn spring moon planet comet rocket train ship boat wagon bicycle engine wheel anchor
    compass ladder rope shield sword arrow crown throne dragon giant pirate sailor farmer doctor soldier
    """.split()
)


FIRST_NAMES: tuple[str, ...] = tuple(
    """
    Alice Anna Arthur Barbara Bernard Carla Charles Clara Daniel David Diana Edward Elena Emma Eric Fiona
    Frank George Grace Hannah Harold Helen Henry Hugo Irene Isaac Jacob James Jane Joan John Julia Karen
    Karl Kate Laura Leo Lewis Linda Louis Lucy Marco Maria Martin Mary Max Michael Monica Nadia Nathan
    Nina Nora Oliver Oscar Paul Peter Philip Rachel Ralph Rebecca Richard Robert Rosa Ruth Samuel Sandra
    Sarah Simon Sophie Stella Stephen Susan Theodore Thomas Tina Victor Vincent Walter William
    """.split()
)

SURNAMES: tuple[str, ...] = tuple(
    """
    Adams Allen Anderson Bailey Baxter Bennett Bishop Boyd Bradley Burke Butler Carlson Carter Clark
    Coleman Collins Cooper Crawford Dalton Davis Dawson Dixon Duncan Edwards Elliott Evans Ferguson
    Fletcher Foster Gibson Graham Griffin Hamilton Harper Harris Hayes Hughes Hunter Jackson Jensen
    Johnson Jordan Keller Kennedy Knight Lambert Lawson Logan Marshall Mason Miller Mitchell Morgan
    Murphy Nelson Norton Owens Parker Patterson Perkins Porter Quinn Reynolds Robinson Russell Sanders
    Shaw Spencer Stevens Sullivan Thompson Turner Wagner Wallace Watson Weaver Webster Wheeler Wilson
    """.split()
)
